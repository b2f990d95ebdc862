// Tasks of all brokers: how many wait, and whether anybody runs them. Single tasks are on the broker's own page.

import { refresh } from "./cluster.js";
import { el, reconcile, setText } from "./dom.js";
import { ago, count, short } from "./format.js";
import { timeline } from "./timeline.js";
import { Rows, pill, setPill, textCell } from "./widgets.js";

const TILES = [["waiting", "Waiting"], ["running", "Running"], ["delayed", "Delayed"], ["error", "Dead letters"], ["finished", "Finished"]];

export function brokersView(app) {
  const chart = timeline("Tasks that wait, of all brokers", [{ name: "waiting", key: "waiting" }]);
  const cards = el("div", { class: "view" });
  const failure = el("p", { class: "banner is-error", role: "alert", hidden: true });
  const none = el("p", { class: "quiet", hidden: true }, "No broker runs: rsm broker run starts one.");

  function make(one) {
    const title = el("h2", { id: `broker-${one.log}` }, one.log);
    const node = el("section", { class: "card broker", "aria-labelledby": `broker-${one.log}` });
    node.link = el("a", { rel: "noreferrer" }, "Its dashboard: tenants, tasks, workers, limits");
    node.problem = el("p", { class: "banner is-error", hidden: true });
    node.values = Object.fromEntries(TILES.map(([name]) => [name, el("span", { class: "tile-value num" }, "–")]));
    node.workers = el("p", { class: "num" });
    node.rows = new Rows({
      label: `Task types of ${one.log}`,
      key: (type) => type.type,
      empty: { title: "No tasks", text: "rsm task submit sends one." },
      columns: [
        { title: "Type", class: "name", render: textCell((type) => type.type) },
        { title: "Served", class: "state", render: servedCell },
        { title: "Waiting", class: "num", render: textCell((type) => count(type.waiting)) },
        { title: "Running", class: "num", render: textCell((type) => count(type.running)) },
        { title: "Dead letters", class: "num", render: textCell((type) => count(type.error)) },
      ],
    });
    node.append(
      el("div", { class: "card-head" }, title, node.link), node.problem,
      el("div", { class: "tiles" }, TILES.map(([name, said]) => el("div", { class: `tile tile-${name}` }, el("span", { class: "tile-title" }, said), node.values[name]))),
      node.workers, node.rows.node);
    return node;
  }

  function update(node, one) {
    node.item = one;
    node.problem.hidden = !one.problem;
    setText(node.problem, one.problem);
    node.link.hidden = !/^https?:\/\//.test(one.url);
    if (!node.link.hidden) node.link.href = `${one.url}/#/tasks`;
    for (const [name] of TILES) setText(node.values[name], one.problem ? "–" : short(one[name]));
    if (one.problem) node.rows.fail(one.problem);
    else node.rows.set([...one.types].sort((type, other) => type.is_served - other.is_served || other.waiting - type.waiting));
    fillWorkers(node);
  }

  function fillWorkers(node) {
    const one = node.item;
    const oldest = one.oldest_waiting_ms ? `; the oldest task waits for ${ago(one.oldest_waiting_ms)}` : "";
    setText(node.workers, one.problem ? "" : `${count(one.workers)} workers are connected, with ${count(one.threads)} threads${oldest}.`);
  }

  function draw(view) {
    failure.hidden = true;
    none.hidden = view.tasks.length > 0;
    reconcile(cards, view.tasks, (one) => one.log, make, update);
  }

  function fail(text) {
    failure.hidden = false;
    setText(failure, `The tasks could not be read: ${text}`);
  }

  async function readHistory() {
    try {
      chart.set(await app.ask(["history"]));
    } catch {
      // The view says why.
    }
  }

  return {
    node: el("div", { class: "view" }, failure, none, cards, chart),
    show() {},
    read: (names) => Promise.all([refresh(app, draw, fail), names.has("*") || names.has("history") ? readHistory() : undefined]),
    tick: () => [...cards.children].forEach(fillWorkers),
    keyPressed: (event) => {
      const own = [...cards.children].find((node) => node.contains(document.activeElement)) ?? cards.firstElementChild;
      return own?.rows.keyPressed(event) ?? false;
    },
  };
}

function servedCell(cell, type) {
  if (!cell.firstChild) cell.append(pill(""));
  const kind = type.is_served ? "connected" : type.waiting ? "error" : "waiting";
  setPill(cell.firstChild, kind);
  setText(cell.firstChild, type.is_served ? "by workers" : "by nobody");
}
