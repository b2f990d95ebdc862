// What is wrong, above every view: the cause, what to do, and the command to type.

import { address } from "./cluster.js";
import { el, reconcile, setText } from "./dom.js";
import { ago, clock } from "./format.js";
import { button, toast } from "./widgets.js";

const SHOWN = 3;
const node = document.getElementById("warnings");
const list = el("ul", { class: "warning-list" });
const more = button("", () => {
  isOpen = !isOpen;
  draw();
}, { kind: "is-small" });
let isOpen = false;
let warnings = [];
node.append(list, more);

export function showWarnings(view) {
  warnings = view.warnings;
  draw();
}

/** Ages grow while nothing happens. */
export function tickWarnings() {
  for (const row of list.children) if (row.item) setText(row.since, sinceText(row.item));
}

function draw() {
  node.hidden = warnings.length === 0;
  const shown = isOpen ? warnings : warnings.slice(0, SHOWN);
  reconcile(list, shown, (one) => one.about, make, update);
  more.hidden = warnings.length <= SHOWN;
  more.setAttribute("aria-expanded", String(isOpen));
  setText(more, isOpen ? "Show fewer" : `${warnings.length - SHOWN} more`);
}

function make(one) {
  const row = el("li", { class: "warning" });
  row.grade = el("strong", { class: "pill" });
  row.cause = el("span", { class: "warning-cause" });
  row.advice = el("span", { class: "warning-advice" });
  row.since = el("span", { class: "quiet num" });
  row.command = el("code");
  row.copy = button("Copy", () => copy(row.item.command), { kind: "is-small", title: "Copy the command" });
  row.typed = el("span", { class: "warning-command" }, row.command, navigator.clipboard ? row.copy : null);
  row.link = el("a", {}, "Show");
  // Said when it appears; what changes in it later is a number or two.
  const said = { class: "warning-text", role: one.grade === "bad" ? "alert" : "status", "aria-atomic": "false" };
  row.append(row.grade, el("span", said, row.cause, " ", row.advice), row.since, row.typed, row.link);
  return row;
}

function update(row, one) {
  row.item = one;
  row.className = `warning is-${one.grade === "bad" ? "bad" : "note"}`;
  row.grade.className = `pill pill-${one.grade === "bad" ? "error" : "delayed"}`;
  setText(row.grade, one.grade);
  setText(row.cause, `${one.cause}.`);
  setText(row.advice, one.advice);
  setText(row.since, sinceText(one));
  row.since.title = clock(one.since_ms);
  setText(row.command, one.command);
  row.copy.setAttribute("aria-label", `Copy the command ${one.command}`);
  row.typed.hidden = !one.command;
  row.link.href = address(one.view);
  row.link.setAttribute("aria-label", `Show ${one.view}`);
}

function sinceText(one) {
  return one.since_ms ? `seen for ${ago(one.since_ms)}` : "";
}

async function copy(command) {
  try {
    await navigator.clipboard.writeText(command);
    toast("Copied.");
  } catch {
    toast("The browser does not allow it: select the command.", "is-error");
  }
}
