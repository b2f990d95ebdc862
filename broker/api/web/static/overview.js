// How much there is, how fast it goes, who leads.

import { el, reconcile, setText } from "./dom.js";
import { ago, count, orDash, rate, short, span } from "./format.js";
import { bar, sparkline } from "./widgets.js";

const TILES = [
  ["waiting", "Waiting", "#/tasks?q=status:waiting"],
  ["running", "Running", "#/tasks?q=status:running"],
  ["delayed", "Delayed", "#/tasks?q=status:delayed"],
  ["error", "Dead letters", "#/tasks?q=status:error"],
  ["finished", "Finished", "#/tasks?q=status:finished"],
];
const MEAN_SECONDS = 10;

export function overviewView(app) {
  const values = Object.fromEntries(TILES.map(([status]) => [status, el("span", { class: "tile-value num" }, "–")]));
  const tiles = el("div", { class: "tiles" }, TILES.map(([status, title, href]) =>
    el("a", { class: `tile tile-${status}`, href }, el("span", { class: "tile-title" }, title), values[status])));
  const oldest = el("span", { class: "num" }, "–");
  const chart = sparkline("Tasks submitted and ended a second, over the last minute");
  const submitted = el("span", { class: "num" }, "0");
  const ended = el("span", { class: "num" }, "0");
  const threads = bar("Threads in use");
  const threadsText = el("span", { class: "num" }, "–");
  const facts = el("dl", { class: "facts" });
  const types = el("tbody");
  const typesNone = el("p", { class: "quiet", hidden: true }, "No tasks yet.");
  const failure = el("p", { class: "banner is-error", role: "alert", hidden: true });

  const node = el("div", { class: "view" },
    failure,
    tiles,
    el("div", { class: "columns" },
      el("section", { class: "card", "aria-labelledby": "rate-title" },
        el("div", { class: "card-head" },
          el("h2", { id: "rate-title" }, "Throughput"),
          el("p", { class: "legend" },
            el("span", { class: "key key-submitted" }, "submitted ", submitted, "/s"),
            el("span", { class: "key key-ended" }, "ended ", ended, "/s"))),
        chart,
        el("div", { class: "pair" },
          el("div", {}, el("p", { class: "label" }, "Threads in use ", threadsText), threads),
          el("div", {}, el("p", { class: "label" }, "Oldest waiting task"), el("p", { class: "big" }, oldest)))),
      el("section", { class: "card", "aria-labelledby": "broker-title" },
        el("div", { class: "card-head" }, el("h2", { id: "broker-title" }, "Brokers")), facts)),
    el("section", { class: "card", "aria-labelledby": "types-title" },
      el("div", { class: "card-head" }, el("h2", { id: "types-title" }, "Task types")),
      el("div", { class: "table-wrap" },
        el("table", { class: "rows types", "aria-label": "Task types" },
          el("thead", {}, el("tr", {}, el("th", { scope: "col", class: "name" }, "Type"), TILES.map(([, title]) => el("th", { scope: "col", class: "num" }, title)))),
          types)),
      typesNone));

  let found = null;

  function typeRow(one) {
    return el("tr", {}, el("td", { class: "name" }, el("a", { href: `#/tasks?q=${encodeURIComponent(`type:${one.type}`)}` })), TILES.map(() => el("td", { class: "num" })));
  }

  function fillType(row, one) {
    setText(row.firstChild.firstChild, one.type);
    TILES.forEach(([status, title], place) => {
      const cell = row.children[place + 1];
      cell.dataset.title = title;
      setText(cell, one.by_status[status] ? count(one.by_status[status]) : "–");
      cell.classList.toggle("quiet", !one.by_status[status]);
      cell.classList.toggle("is-none", !one.by_status[status]);
    });
  }

  function tick() {
    const rates = app.live.rates();
    chart.set(rates);
    const mean = (list) => list.slice(-MEAN_SECONDS).reduce((sum, one) => sum + one, 0) / Math.max(1, Math.min(MEAN_SECONDS, list.length));
    setText(submitted, rate(mean(rates.submitted)));
    setText(ended, rate(mean(rates.ended)));
    setText(oldest, found?.oldest_waiting_ms ? ago(found.oldest_waiting_ms) : "–");
  }

  return {
    node,
    show() {},
    tick,
    async read() {
      try {
        found = await app.ask(["overview"]);
        failure.hidden = true;
      } catch (error) {
        failure.hidden = false;
        setText(failure, `The counts could not be read: ${error.message}.`);
        return;
      }
      for (const [status] of TILES) setText(values[status], short(found.by_status[status]));
      const running = found.by_status.running ?? 0;
      setText(threadsText, `${count(running)} of ${count(found.threads)}`);
      threads.set(found.threads ? running / found.threads : 0, `Threads in use: ${running} of ${found.threads}`);
      reconcile(types, found.types, (one) => one.type, typeRow, fillType);
      typesNone.hidden = found.types.length > 0;
      fillFacts();
      tick();
    },
    status: fillFacts,
  };

  function fillFacts() {
    const status = app.status;
    const workers = found?.workers_by_status ?? {};
    const here = status ? `${orDash(status.replica_id)} (${status.role})` : "–";
    const leads = status?.role === "leader" || !status?.leader_http;
    const rows = [
      ["This broker", here],
      ["Leader", leads ? orDash(status?.leader) : el("a", { href: safeUrl(status.leader_http) }, status.leader || status.leader_http)],
      ["Epoch", count(status?.leader_epoch)],
      ["Revision", count(status?.revision)],
      ["Behind the leader", status && status.role !== "leader" ? span(status.lag_ms) : "–"],
      ["Workers", Object.entries(workers).map(([word, amount]) => `${count(amount)} ${word}`).join(", ") || "none"],
      ["Tenants with work", count(found?.tenant_count)],
    ];
    facts.replaceChildren(...rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", { class: "num" }, value)]));
  }
}

function safeUrl(url) {
  return /^https?:\/\//.test(url) ? url : "#/overview";
}
