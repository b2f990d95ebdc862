// Who looks at all ledgers, when that was done last, and what was found.

import { el, setText } from "./dom.js";
import { ago, clock, count } from "./format.js";

const KINDS = { audit: "Audit: metadata of all ledgers", check: "Check: what the bookies hold" };

export function auditCard() {
  const facts = el("dl", { class: "facts" });
  let audit = null;

  function draw(told) {
    audit = told;
    fill();
  }

  function fill() {
    if (!audit) return;
    const shown = [
      ["Who audits", `${audit.auditor || "nobody: rsm autorecovery run"}${audit.is_enabled ? "" : "; auto-recovery is switched off: rsm autorecovery enable"}`],
      ...audit.looks.flatMap(look),
    ];
    if (facts.children.length !== 2 * shown.length) facts.replaceChildren(...shown.flatMap(() => [el("dt"), el("dd", { class: "num" })]));
    shown.forEach(([name, value], place) => {
      setText(facts.children[2 * place], name);
      setText(facts.children[2 * place + 1], value);
    });
  }

  function look(one) {
    const lines = [[KINDS[one.kind] ?? one.kind, one.by ? ended(one) : never(one)]];
    if (one.running_by) lines.push(["Under way", running(one)]);
    if (one.lost.length) lines.push(["Lost bookies", one.lost.join(", ")]);
    if (one.drained.length) lines.push(["Drained bookies", one.drained.join(", ")]);
    if (one.problem) lines.push(["Put off", one.problem]);
    return lines;
  }

  /** BookKeeper's auditor tells when a check of its own ended, and nothing else. */
  function never(one) {
    return one.kind === "check" && audit.checked_ms ? `by BookKeeper's auditor, ended ${clock(audit.checked_ms)}` : "none yet: rsm cluster audit --now";
  }

  const node = el("section", { class: "card part", "aria-labelledby": "audit-title" },
    el("div", { class: "card-head" }, el("h2", { id: "audit-title" }, "Audit")), facts);
  return { node, draw, tick: fill };
}

function ended(one) {
  const seconds = Math.max(0, one.ended_ms - one.began_ms) / 1000;
  return `${clock(one.ended_ms)}, ${ago(one.ended_ms)} ago, by ${one.by}: ${count(one.ledger_count)} ledgers in ${seconds.toFixed(1)} s; ${one.found}`;
}

function running(one) {
  if (!one.running_goes_on) return `one of ${one.running_by} was broken off: it audits no more`;
  return `for ${ago(one.running_ms)}, by ${one.running_by}: ${count(one.running_seen)} of ${count(one.running_count)} ledgers`;
}
