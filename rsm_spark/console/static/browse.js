// Look into a log: its records from a revision on, its audit, keys of a map, rows of SQL tables. Nothing is changed.

import { address, refresh } from "./cluster.js";
import { el, setText } from "./dom.js";
import { clock, count } from "./format.js";
import { machineOf } from "./log.js";
import { Rows, button, textCell } from "./widgets.js";

const FIELDS_SHOWN = 400;
const TABS = [
  ["records", "Records", () => true],
  ["audit", "Audit", (log) => !log.is_plain],
  ["map", "Keys", (log) => log.machine === "map"],
  ["sql", "SQL", (log) => log.machine === "sql"],
];

export function browseView(app) {
  const chooser = el("select", { "aria-label": "Log", onchange: () => app.go(address(`browse/${chooser.value}`)) });
  const tabs = el("div", { class: "chips", role: "group", "aria-label": "What of it" });
  const body = el("div", { class: "view" });
  const none = el("p", { class: "quiet", hidden: true }, "There is no log yet.");
  let logs = [];
  let name = "";
  let tab = "";
  let shown = null;

  function draw(view) {
    logs = view.logs;
    none.hidden = logs.length > 0;
    const names = logs.map((one) => one.log);
    if (JSON.stringify([...chooser.options].map((one) => one.value)) !== JSON.stringify(names)) {
      chooser.replaceChildren(...logs.map((one) => el("option", { value: one.log }, `${one.log} (${machineOf(one)})`)));
    }
    choose();
  }

  function choose() {
    const log = logs.find((one) => one.log === name) ?? logs[0];
    if (!log) return;
    chooser.value = log.log;
    const fitting = TABS.filter(([, , fits]) => fits(log));
    const wanted = (fitting.find(([one]) => one === tab) ?? fitting[0])[0];
    if (shown?.log === log.log && shown.tab === wanted) return;
    shown = { log: log.log, tab: wanted, part: parts[wanted](app, log.log) };
    tabs.replaceChildren(...fitting.map(([one, title]) =>
      el("button", { type: "button", class: "choice", "aria-pressed": String(one === wanted), onclick: () => app.go(address(`browse/${log.log}/${one}`)) }, title)));
    body.replaceChildren(shown.part.node);
    shown.part.read?.();
  }

  return {
    node: el("div", { class: "view" }, el("div", { class: "tools" }, chooser, tabs), none, body),
    show([wantedName = "", wantedTab = ""]) {
      name = wantedName;
      tab = wantedTab;
      choose();
    },
    // What is shown is as of when it was asked for: it does not change below the reader.
    read: () => refresh(app, draw, (text) => body.replaceChildren(el("p", { class: "banner is-error", role: "alert" }, text))),
    search: () => body.querySelector("input, textarea")?.focus(),
    keyPressed: (event) => shown?.part.rows?.keyPressed(event) ?? false,
  };
}

const parts = {
  records: (app, log) => recordsPart(app, log, ""),
  audit: (app, log) => recordsPart(app, log, "audited"),
  map: mapPart,
  sql: sqlPart,
};

function recordsPart(app, log, type) {
  const from = el("input", { type: "number", min: "1", placeholder: "the last ones", "aria-label": "From revision" });
  const said = el("p", { class: "quiet num", role: "status" });
  const next = button("Further", () => ask(found.next_revision), { kind: "is-small" });
  const form = el("form", { class: "tools", onsubmit: (event) => { event.preventDefault(); ask(Number(from.value) || 0); } },
    el("label", {}, "From revision ", from), el("button", { class: "button is-main", type: "submit" }, "Show"), next, said);
  const rows = new Rows({
    label: type ? "Audit" : "Records",
    key: (one) => one.revision,
    empty: type ? { title: "Nothing is audited here", text: "No change of rights, code, holds or the log was asked for in these records." } : { title: "No records", text: "There are none from this revision on." },
    columns: [
      { title: "Revision", class: "num id", render: textCell((one) => count(one.revision)) },
      { title: "Logged", class: "wide", render: textCell((one) => clock(one.logged_ms)) },
      { title: "Type", class: "name", render: textCell((one) => one.type) },
      { title: "Fields", class: "said", render: fieldsCell },
      { title: "Entry", class: "num", render: textCell((one) => `${one.ledger_id}:${one.entry_id}`) },
    ],
  });
  rows.table.classList.add("is-text");
  let found = { rows: [], next_revision: 0, first_revision: 0 };
  next.disabled = true;

  async function ask(revision) {
    try {
      found = await app.ask(["logs", log, "records"], { query: { from_revision: revision, type } });
    } catch (error) {
      rows.fail(error.message);
      return;
    }
    rows.set(found.rows);
    next.disabled = !found.next_revision;
    setText(said, `The log begins with revision ${count(found.first_revision)}.`);
  }
  return { node: el("div", { class: "view" }, form, rows.node), rows, read: () => ask(0) };
}

/** Fields in full where the pointer rests, and as much of them as a list can bear. */
function fieldsCell(cell, one) {
  const text = fieldsOf(one);
  setText(cell, text.length > FIELDS_SHOWN ? `${text.slice(0, FIELDS_SHOWN)}…` : text);
  cell.title = text;
}

function fieldsOf(one) {
  return Object.entries(one.fields).map(([name, value]) => `${name}=${value}`).join("  ") || "–";
}

function mapPart(app, log) {
  const prefix = el("input", { type: "search", placeholder: "Beginning of the keys", "aria-label": "Beginning of the keys", spellcheck: "false", autocapitalize: "off" });
  const said = el("p", { class: "quiet num", role: "status" });
  const next = button("Further", () => ask(found.next_start), { kind: "is-small" });
  const form = el("form", { class: "tools", role: "search", onsubmit: (event) => { event.preventDefault(); ask(""); } },
    prefix, el("button", { class: "button is-main", type: "submit" }, "Show"), next, said);
  const rows = new Rows({
    label: "Keys",
    key: (one) => one.key,
    empty: { title: "No keys", text: "No key begins so." },
    columns: [
      { title: "Key", class: "name", render: textCell((one) => one.key) },
      { title: "Value", class: "said", render: textCell((one) => one.value) },
      { title: "Bytes", class: "num", render: textCell((one) => count(one.bytes)) },
      { title: "Written at", class: "num", render: textCell((one) => count(one.revision)) },
    ],
  });
  rows.table.classList.add("is-text");
  let found = { next_start: "" };
  next.disabled = true;

  async function ask(start) {
    try {
      found = await app.ask(["logs", log, "map"], { query: { prefix: prefix.value, start } });
    } catch (error) {
      rows.fail(error.message);
      return;
    }
    rows.set(found.rows);
    next.disabled = !found.next_start;
    setText(said, `As of revision ${count(found.revision)}.`);
  }
  return { node: el("div", { class: "view" }, form, rows.node), rows, read: () => ask("") };
}

function sqlPart(app, log) {
  const text = el("textarea", { rows: "3", maxlength: "4000", "aria-label": "Statement", spellcheck: "false", autocapitalize: "off" });
  text.value = "SELECT name, sql FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE '$_rsm%' ESCAPE '$' ORDER BY name";
  const said = el("p", { class: "quiet num", role: "status" });
  const failure = el("p", { class: "banner is-error", role: "alert", hidden: true });
  const result = el("div", { class: "table-wrap" });
  const form = el("form", { class: "view", onsubmit: (event) => { event.preventDefault(); ask(); } },
    text, el("div", { class: "tools" }, el("button", { class: "button is-main", type: "submit" }, "Run"), said));
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) ask();
  });

  async function ask() {
    let found;
    try {
      found = await app.ask(["logs", log, "sql"], { query: { sql: text.value } });
    } catch (error) {
      failure.hidden = false;
      setText(failure, error.message);
      return;
    }
    failure.hidden = true;
    setText(said, `${count(found.rows.length)} rows${found.is_cut ? ", and there are more" : ""}, as of revision ${count(found.revision)}.`);
    result.replaceChildren(el("table", { class: "small-table result", "aria-label": "Result" },
      el("thead", {}, el("tr", {}, found.columns.map((one) => el("th", { scope: "col" }, one)))),
      el("tbody", {}, found.rows.map((row) => el("tr", {}, row.map((value) => el("td", value === null ? { class: "quiet" } : {}, value ?? "NULL")))))));
  }
  return { node: el("div", { class: "view" }, form, failure, result), read: ask };
}
