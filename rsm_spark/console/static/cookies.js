// Cookies: the disks to which each bookie's id is tied.

import { el } from "./dom.js";
import { orDash } from "./format.js";
import { Rows, textCell } from "./widgets.js";

export function cookieRows() {
  const rows = new Rows({
    label: "Cookies",
    key: (one) => one.bookie_id,
    empty: { title: "No cookies", text: "A bookie that starts for the first time leaves one." },
    columns: [
      { title: "Bookie", class: "name", render: textCell((one) => one.bookie_id) },
      { title: "Serves", class: "state", render: textCell((one) => (one.serves ? "yes" : "no")) },
      { title: "Journal", class: "said", render: textCell((one) => orDash(one.journal)) },
      { title: "Ledgers", class: "said", render: textCell((one) => orDash(one.ledgers.join(", "))) },
      { title: "What is wrong", class: "said", render: textCell((one) => orDash(one.problem)) },
    ],
  });
  rows.table.classList.add("is-text");
  const node = el("section", { class: "part", "aria-labelledby": "cookies-title" }, el("h2", { id: "cookies-title" }, "Cookies"), rows.node);
  return { node, rows, draw: (cookies) => rows.set(cookies) };
}
