// Which entries have fewer copies than they should, since when, and who does something about it.

import { refresh } from "./cluster.js";
import { el, setText } from "./dom.js";
import { ago, clock, count, orDash } from "./format.js";
import { timeline } from "./timeline.js";
import { Rows, textCell } from "./widgets.js";

export function copiesView(app) {
  const facts = el("dl", { class: "facts" });
  const left = el("p", { class: "quiet", hidden: true });
  const chart = timeline("Copies that are missing", [{ name: "ledgers", key: "lacking" }, { name: "entries", key: "lacking_entries" }]);
  let copies = null;
  const rows = new Rows({
    label: "Ledgers that lack copies",
    key: (one) => one.ledger_id,
    empty: { title: "No ledger lacks a copy", text: "All entries have their copies on bookies that serve." },
    columns: [
      { title: "Ledger", class: "num id", render: textCell((one) => one.ledger_id) },
      { title: "Entries", class: "num", render: textCell((one) => `${count(one.entry_count)}${one.is_being_written ? " and those being written" : ""}`) },
      { title: "Copies left", class: "num", render: textCell((one) => (one.copies_min ? count(one.copies_min) : "none")) },
      { title: "Lacking on", class: "name", render: textCell((one) => orDash(one.bookie_ids.join(", "))) },
      { title: "What is done", class: "said", render: textCell((one) => (one.worker ? `${one.worker} copies it` : one.is_marked ? "marked, waits for a worker" : "nobody has noticed yet")) },
    ],
  });

  function draw(view) {
    copies = view.copies;
    rows.set(copies?.lacking ?? []);
    const rest = (copies?.lacking_count ?? 0) - (copies?.lacking.length ?? 0);
    left.hidden = rest <= 0;
    setText(left, `${count(rest)} more are not shown: rsm cluster under-replicated lists all.`);
    fill();
  }

  function fill() {
    if (!copies) return;
    const shown = [
      ["Copies", copies.summary],
      ["Lacking since", copies.since_ms ? `${clock(copies.since_ms)}, for ${ago(copies.since_ms)}` : "–"],
      ["Entries without any copy that serves", copies.unreadable_count ? `in ${count(copies.unreadable_count)} ledgers` : "none"],
      ["Who looks for lost copies", copies.auditor || "nobody: rsm autorecovery run"],
      ["Auto-recovery", copies.is_enabled ? "on" : "switched off: rsm autorecovery enable"],
      ["All copies were last checked", copies.checked_ms ? clock(copies.checked_ms) : "never"],
    ];
    if (facts.children.length !== 2 * shown.length) facts.replaceChildren(...shown.flatMap(() => [el("dt"), el("dd", { class: "num" })]));
    shown.forEach(([name, value], place) => {
      setText(facts.children[2 * place], name);
      setText(facts.children[2 * place + 1], value);
    });
  }

  async function readHistory() {
    try {
      chart.set(await app.ask(["history"]));
    } catch {
      // The view says why.
    }
  }

  return {
    node: el("div", { class: "view" },
      el("section", { class: "card", "aria-labelledby": "copies-title" }, el("div", { class: "card-head" }, el("h2", { id: "copies-title" }, "Copies")), facts),
      rows.node, left, chart),
    show() {},
    read: (names) => Promise.all([refresh(app, draw, (text) => rows.fail(text)), names.has("*") || names.has("history") ? readHistory() : undefined]),
    tick: fill,
    keyPressed: (event) => rows.keyPressed(event),
  };
}
