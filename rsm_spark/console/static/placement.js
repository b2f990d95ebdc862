// In how many regions, zones and racks copies have to lie, and which ledgers break that rule.

import { el, setText } from "./dom.js";
import { count } from "./format.js";
import { Rows, textCell } from "./widgets.js";

export function placementCard() {
  const said = el("p");
  const unplaced = el("p", { class: "quiet", hidden: true });
  const failure = el("p", { class: "banner is-error", role: "alert", hidden: true });
  const left = el("p", { class: "quiet num", hidden: true });
  const rows = new Rows({
    label: "Ledgers that break the placement rule",
    key: (one) => one.ledger_id,
    empty: { title: "No ledger breaks the rule", text: "" },
    columns: [
      { title: "Ledger", class: "num id", render: textCell((one) => one.ledger_id) },
      { title: "From entries", class: "said", render: textCell((one) => entries(one)) },
    ],
  });

  function draw(placement) {
    failure.hidden = !placement?.problem;
    setText(failure, placement?.problem ?? "");
    const hasRule = Boolean(placement?.rule);
    const strict = placement?.is_strict ? "; rather no ledger than one against it" : "";
    setText(said, hasRule ? `The rule: ${placement.rule}${strict}. ${count(placement.misplaced_count)} of ${count(placement.ledger_count)} ledgers break it.` : placement?.problem ? "" : "There is no rule: each process chooses bookies by its own settings. rsm cluster set-placement sets one.");
    unplaced.hidden = !placement?.unplaced_count;
    setText(unplaced, placement?.unplaced_count ? `Nobody said where ${placement.unplaced.join(", ")} ${placement.unplaced_count > 1 ? "stand" : "stands"}${placement.unplaced_count > placement.unplaced.length ? ", and others" : ""}.` : "");
    rows.node.hidden = !hasRule;
    rows.set(placement?.misplaced ?? []);
    const rest = (placement?.misplaced_count ?? 0) - (placement?.misplaced.length ?? 0);
    left.hidden = rest <= 0;
    setText(left, `${count(rest)} more are not shown: rsm cluster placement --json lists all.`);
  }

  const node = el("section", { class: "card part", "aria-labelledby": "placement-title" },
    el("div", { class: "card-head" }, el("h2", { id: "placement-title" }, "Placement")), failure, said, unplaced, rows.node, left);
  return { node, rows, draw };
}

function entries(one) {
  const more = one.segment_count - one.first_entries.length;
  return `${one.first_entries.map(count).join(", ")}${more > 0 ? `, and ${count(more)} more` : ""}`;
}
