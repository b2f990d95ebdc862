// The logs: who leads each, how far its replicas are; one of them in detail beside the list.

import { address, refresh } from "./cluster.js";
import { el, setText } from "./dom.js";
import { count, orDash } from "./format.js";
import { logPanel, machineOf } from "./log.js";
import { Rows, pill, setPill, textCell } from "./widgets.js";

const PILLS = { led: "connected", written: "connected", idle: "waiting", "no leader": "error", "not shown": "error", forgotten: "waiting" };

export function logsView(app) {
  const filter = el("input", { type: "search", placeholder: "Filter by name, machine or leader", "aria-label": "Filter logs", oninput: () => drawRows() });
  const summary = el("p", { class: "quiet num" });
  const panel = logPanel(app, () => app.go("#/logs"));
  let logs = [];
  let chosen = "";
  const rows = new Rows({
    label: "Logs",
    key: (one) => one.log,
    open: (one) => app.go(address(`logs/${one.log}`)),
    empty: { title: "No logs", text: "rsm store run makes the first one." },
    columns: [
      { title: "Log", class: "name", render: textCell((one) => one.log) },
      { title: "State", class: "state", render: stateCell },
      { title: "Machine", class: "narrow", render: textCell((one) => machineOf(one)) },
      { title: "Led by", class: "wide", render: textCell((one) => orDash(one.leader)) },
      { title: "Revision", class: "num", render: textCell((one) => count(one.revision)) },
      { title: "Replicas", class: "num", render: textCell((one) => (one.is_plain ? "–" : count(one.replicas.length))) },
      { title: "Behind", class: "num", render: textCell((one) => (one.replicas.length > 1 ? count(Math.max(...one.replicas.map((replica) => replica.behind))) : "–")) },
      { title: "Ledgers", class: "num narrow", render: textCell((one) => count(one.ledger_count)) },
      { title: "What is wrong", class: "said", render: textCell(said) },
    ],
  });
  const node = el("div", { class: "view split" },
    el("div", { class: "split-list" }, el("div", { class: "tools" }, filter, summary), rows.node),
    panel.node);

  function stateCell(cell, one) {
    if (!cell.firstChild) cell.append(pill(""));
    const state = stateOf(one);
    setPill(cell.firstChild, PILLS[state]);
    setText(cell.firstChild, state);
  }

  function drawRows() {
    const wanted = filter.value.trim().toLowerCase();
    rows.set(logs.filter((one) => !wanted || `${one.log} ${machineOf(one)} ${one.leader} ${stateOf(one)}`.toLowerCase().includes(wanted)));
    for (const row of rows.body.children) row.classList.toggle("is-chosen", row.dataset.key === chosen);
  }

  function draw(view) {
    logs = view.logs;
    const left = view.log_count - logs.length;
    setText(summary, `${count(view.log_count)} logs${left > 0 ? `, ${count(left)} of them are not looked at (--logs-max)` : ""}`);
    drawRows();
  }

  return {
    node,
    show([name = ""]) {
      chosen = name;
      node.classList.toggle("has-panel", Boolean(name));
      panel.show(name);
      for (const row of rows.body.children) row.classList.toggle("is-chosen", row.dataset.key === chosen);
    },
    read: (names) => Promise.all([refresh(app, draw, (text) => rows.fail(text)), panel.read(names)]),
    tick: () => panel.tick(),
    search: () => filter.focus(),
    close: () => {
      if (!chosen) return;
      const row = [...rows.body.children].find((one) => one.dataset.key === chosen);
      app.go("#/logs");
      row?.focus();
    },
    keyPressed: (event) => rows.keyPressed(event),
  };
}

function stateOf(one) {
  if (one.problem) return "not shown";
  if (one.forgotten_by) return "forgotten";
  if (one.machine === "partitioned log") return "partitioned";
  if (one.is_plain) return one.leader ? "written" : "idle";
  return one.leader ? "led" : "no leader";
}

function said(one) {
  const replicas = one.replicas.filter((replica) => replica.problem).map((replica) => `${replica.replica_id}: ${replica.problem}`);
  return [one.problem, ...one.alarms, ...replicas].filter(Boolean).join("; ") || "–";
}
