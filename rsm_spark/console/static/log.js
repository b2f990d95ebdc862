// One log in detail: replicas, followers, what stays and why, who led it and why that ended, its ledgers.

import { address, bytes } from "./cluster.js";
import { el, icon, setText } from "./dom.js";
import { ago, clock, count, orDash, span } from "./format.js";
import { perSecond, timeline } from "./timeline.js";
import { pill } from "./widgets.js";

const CHANGES = {
  first: "the first leader",
  "another-replica": "another replica than before",
  "same-replica-restarted": "the same replica, as a new process",
  "same-process-again": "the same process, once more",
  unknown: "not known who led before",
};

export function logPanel(app, close) {
  const title = el("h2", { tabindex: "-1", id: "log-title" });
  const body = el("div", { class: "panel-body" });
  const rate = timeline("Records a second", [{ name: "records", key: "rate" }], "h3");
  const behind = timeline("Records behind, of the last replica", [{ name: "behind", key: "behind" }], "h3");
  const node = el("aside", { class: "panel", "aria-labelledby": "log-title", hidden: true },
    el("div", { class: "panel-head" }, title,
      el("button", { type: "button", class: "icon-button", "aria-label": "Close", title: "Close (Esc)", onclick: close }, icon("M5 5l10 10M15 5 5 15"))),
    body);
  let name = "";
  let asked = 0;
  let found = null;

  async function read() {
    if (!name) return;
    const mine = (asked += 1);
    try {
      const details = await app.ask(["logs", name]);
      const history = await app.ask(["history"], { query: { log: name } });
      if (mine !== asked) return;
      found = details;
      draw();
      rate.set({ ...history, rate: perSecond(history, history.revision) });
      behind.set(history);
    } catch (error) {
      if (mine === asked && !found) body.replaceChildren(el("p", { class: "banner is-error", role: "alert" }, `This log could not be read: ${error.message}`));
    }
  }

  function draw() {
    const { log, ledgers, leaders } = found;
    body.replaceChildren(
      ...log.alarms.map((alarm) => el("p", { class: "banner is-error" }, alarm)),
      ...(log.problem ? [el("p", { class: "banner is-error" }, log.problem)] : []),
      facts(log),
      el("p", {}, el("a", { href: address(`browse/${log.log}`) }, "Look into its records")),
      section("Replicas", log.is_plain ? [el("p", { class: "quiet" }, "A plain log has none: programs write and read it.")] : log.replicas.map(replica)),
      section("Followers", log.consumers.length ? log.consumers.map(consumer) : [el("p", { class: "quiet" }, "No consumer holds this log.")]),
      section("What stays, and why", stays(log)),
      section("Who led it", [...leaders.map(leadership), found.leaders_problem ? el("p", { class: "quiet" }, `More is not known: ${found.leaders_problem}.`) : null]),
      section(`Ledgers, newest first (${count(found.ledger_count)})`, [ledgerTable(ledgers)]),
      rate, behind);
  }

  return {
    node,
    show(wanted) {
      node.hidden = !wanted;
      if (wanted === name) return;
      name = wanted;
      found = null;
      setText(title, wanted);
      body.replaceChildren(el("p", { class: "quiet" }, wanted ? "Reading …" : ""));
      if (wanted) {
        title.focus();
        read();
      }
    },
    read: (names) => (names.has("*") || names.has("logs") ? read() : undefined),
    tick() {
      for (const one of body.querySelectorAll("[data-since]")) setText(one, ago(Number(one.dataset.since)));
    },
  };
}

/** A plain log's machine calls itself "log". */
export function machineOf(log) {
  return log.is_plain && log.machine === "log" ? "plain log" : orDash(log.machine);
}

function section(title, children) {
  return el("section", { class: "part" }, el("h3", {}, title), children);
}

function facts(log) {
  const verified = Object.entries(log.verified).map(([place, revision]) => `${place} up to ${count(revision)}`);
  const rows = [
    ["Machine", `${machineOf(log)}${log.log_version ? `, version ${log.log_version}` : ""}`],
    ["Led by", log.leader ? `${log.leader}${log.leader_address ? ` at ${log.leader_address}` : ""}` : "nobody"],
    ["Epoch", count(log.epoch)],
    ["Revision", count(log.revision)],
    ["Verified snapshots", verified.join(", ") || "none"],
    ["Log id", log.log_id],
  ];
  if (log.forgotten_by) rows.push(["Served no more", `as ${log.forgotten_by} said`]);
  return el("dl", { class: "facts" }, rows.map(([what, value]) => [el("dt", {}, what), el("dd", { class: "num" }, value)]));
}

function replica(one) {
  const role = one.role || "no answer";
  const lines = one.problem
    ? [el("p", { class: "is-bad" }, one.problem)]
    : [
      el("p", { class: "num" }, `revision ${count(one.revision)}, ${count(one.behind)} behind${one.lag_ms > 0 ? `, its state is ${span(one.lag_ms)} old` : ""}; ${count(one.row_count)} rows, ${count(one.session_count)} sessions`),
      el("p", { class: "quiet num" }, `snapshots: ${one.snapshots.map(count).join(", ") || "none"}${one.snapshot_ms ? `, the newest ${ago(one.snapshot_ms)} old` : ""}${one.damaged_snapshots ? `; ${count(one.damaged_snapshots)} damaged` : ""}`),
    ];
  const kind = one.problem ? "error" : role === "leader" ? "connected" : "waiting";
  const word = pill(kind);
  setText(word, role);
  return el("div", { class: "line-item" }, el("p", {}, el("strong", {}, one.replica_id), " ", word, " ", el("span", { class: "quiet" }, one.address)), lines);
}

function consumer(one) {
  const said = one.problem || `has read up to ${count(one.revision)}, ${count(one.behind)} behind; holds ${bytes(one.held_bytes)}`;
  return el("div", { class: "line-item" },
    el("p", {}, el("strong", {}, one.name), " ", el("span", { class: "quiet" }, one.what)),
    el("p", { class: `num ${one.lost || one.problem ? "is-bad" : ""}` }, one.lost ? `${said}; ${count(one.lost)} records were trimmed before it has read them` : said),
    one.moved_ms ? el("p", { class: "quiet num" }, "moved ", el("span", { "data-since": one.moved_ms, title: clock(one.moved_ms) }, ago(one.moved_ms)), " ago") : null);
}

function stays(log) {
  if (log.is_plain) return [el("p", { class: "quiet" }, "The limits of a plain log say: rsm log info shows them.")];
  const first = log.leader ? `${count(log.trim_count)} of ${count(log.ledger_count)} ledgers may be trimmed now.` : "The leader says, and there is none.";
  return [el("p", { class: "num" }, first), log.stays.length ? el("ul", { class: "plain-list quiet" }, log.stays.map((one) => el("li", {}, one))) : null];
}

function leadership(one) {
  const until = one.last_entry_ms ? `, last entry ${clock(one.last_entry_ms)}` : "";
  const revisions = one.last_revision >= 0 ? `revisions ${count(one.first_revision)} to ${count(one.last_revision)}` : `revisions ${count(one.first_revision)} on`;
  return el("div", { class: "line-item" },
    el("p", { class: "num" }, el("strong", {}, `Epoch ${count(one.epoch)}: ${orDash(one.replica_id)}`), ` from ${clock(one.since_ms)}${until}`),
    el("p", { class: "quiet num" }, `${revisions}; ${CHANGES[one.change] ?? one.change}`),
    one.why ? el("p", {}, one.why) : null);
}

function ledgerTable(ledgers) {
  return el("table", { class: "small-table num", "aria-label": "Ledgers, newest first" },
    el("thead", {}, el("tr", {}, ["Ledger", "Epoch", "Revisions", "Size", "Made"].map((one) => el("th", { scope: "col" }, one)))),
    el("tbody", {}, ledgers.map((one) => el("tr", {},
      el("td", {}, one.ledger_id), el("td", {}, count(one.epoch)),
      el("td", {}, one.last_revision < 0 ? `${count(one.first_revision)} on` : `${count(one.first_revision)} to ${count(one.last_revision)}`),
      el("td", {}, one.last_revision < 0 ? "is written" : bytes(one.length)),
      el("td", { title: clock(one.created_ms) }, ago(one.created_ms))))));
}
