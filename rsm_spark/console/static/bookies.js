// Who stores the entries and where, how much room is left, whether copies lie apart, and what audits have found.

import { auditCard } from "./audits.js";
import { bytes, refresh } from "./cluster.js";
import { cookieRows } from "./cookies.js";
import { el, setText } from "./dom.js";
import { count, orDash } from "./format.js";
import { placementCard } from "./placement.js";
import { Rows, bar, pill, setPill, textCell } from "./widgets.js";

const PILLS = { writable: "connected", "read-only": "delayed", draining: "draining", missing: "error" };

export function bookiesView(app) {
  const filter = el("input", { type: "search", placeholder: "Filter by name, state or place", "aria-label": "Filter bookies", oninput: () => drawRows() });
  const summary = el("p", { class: "quiet num" });
  const placement = placementCard();
  const audits = auditCard();
  const cookies = cookieRows();
  const lists = () => [rows, placement.rows, cookies.rows];
  let bookies = [];
  const rows = new Rows({
    label: "Bookies",
    key: (one) => one.bookie_id,
    empty: { title: "No bookies", text: "rsm bookie run starts one." },
    columns: [
      { title: "Bookie", class: "name", render: textCell((one) => one.bookie_id) },
      { title: "State", class: "state", render: stateCell },
      { title: "Region / zone / rack", class: "wide said", render: textCell((one) => placeOf(one)) },
      { title: "Disk in use", class: "share", render: useCell },
      { title: "Free", class: "num", render: textCell((one) => bytes(one.free_bytes)) },
      { title: "Of", class: "num", render: textCell((one) => bytes(one.total_bytes)) },
      { title: "Ledgers", class: "num", render: textCell((one) => count(one.ledger_count)) },
      { title: "What is wrong", class: "said", render: textCell((one) => said(one)) },
    ],
  });

  function stateCell(cell, one) {
    if (!cell.firstChild) cell.append(pill(""));
    setPill(cell.firstChild, PILLS[one.state] ?? "other");
    setText(cell.firstChild, one.state);
  }

  function useCell(cell, one) {
    if (!cell.firstChild) cell.append(bar("Disk in use"), el("span", { class: "num share-text" }));
    const share = one.total_bytes ? 1 - one.free_bytes / one.total_bytes : 0;
    cell.firstChild.hidden = !one.total_bytes;
    cell.firstChild.classList.toggle("is-high", share > 0.9);
    cell.firstChild.set(share, `${one.bookie_id}: ${Math.round(share * 100)} % of its disk is in use`);
    setText(cell.lastChild, one.total_bytes ? `${Math.round(share * 100)} %` : "–");
  }

  function drawRows() {
    const wanted = filter.value.trim().toLowerCase();
    rows.set(bookies.filter((one) => !wanted || `${one.bookie_id} ${one.state} ${placeOf(one)}`.toLowerCase().includes(wanted)));
  }

  function draw(view) {
    bookies = view.bookies;
    const states = Map.groupBy ? [...Map.groupBy(bookies, (one) => one.state)].map(([state, of]) => `${count(of.length)} ${state}`) : [];
    setText(summary, states.join(", "));
    drawRows();
    placement.draw(view.placement);
    audits.draw(view.audit);
    cookies.draw(view.cookies);
  }

  return {
    node: el("div", { class: "view" }, el("div", { class: "tools" }, filter, summary), rows.node, placement.node, audits.node, cookies.node),
    show() {},
    read: () => refresh(app, draw, (text) => lists().forEach((one) => one.fail(text))),
    tick: () => audits.tick(),
    search: () => filter.focus(),
    keyPressed: (event) => (lists().find((one) => one.body.contains(document.activeElement)) ?? rows).keyPressed(event),
  };
}

function placeOf(one) {
  return orDash([one.region, one.zone, one.rack].filter(Boolean).join(" / "));
}

function said(one) {
  if (one.state === "missing") return one.ledger_count ? `does not serve; ${count(one.ledger_count)} ledgers name it` : "served once, no ledger names it";
  return one.problem || "–";
}
