// Who reads the logs: followers in Spark, Delta tables, subscriptions, and how far behind each is.

import { address, bytes, refresh } from "./cluster.js";
import { el, setText } from "./dom.js";
import { ago, clock, count, orDash } from "./format.js";
import { Rows, textCell } from "./widgets.js";

export function followersView(app) {
  const filter = el("input", { type: "search", placeholder: "Filter by log, name or what it is", "aria-label": "Filter followers", oninput: () => drawRows() });
  const summary = el("p", { class: "quiet num" });
  let followers = [];
  const rows = new Rows({
    label: "Followers, those that are most behind first",
    key: (one) => JSON.stringify([one.log, one.name]),
    open: (one) => app.go(address(`logs/${one.log}`)),
    empty: { title: "No followers", text: "A Spark query or a Delta table is here once it has registered as a consumer of a log." },
    columns: [
      { title: "Log", class: "name", render: textCell((one) => one.log) },
      { title: "Follower", class: "wide", render: textCell((one) => one.name) },
      { title: "What it is", class: "said", render: textCell((one) => orDash(one.what)) },
      { title: "Has read", class: "num", render: textCell((one) => count(one.revision)) },
      { title: "Behind", class: "num", render: textCell((one) => count(one.behind)) },
      { title: "Moved", class: "num age", render: movedCell },
      { title: "Holds", class: "num", render: textCell((one) => (one.held_bytes ? bytes(one.held_bytes) : "–")) },
      { title: "What is wrong", class: "wide said", render: textCell((one) => one.problem || (one.lost ? `${count(one.lost)} records were trimmed unread` : "–")) },
    ],
  });

  function movedCell(cell, one) {
    setText(cell, one.moved_ms ? ago(one.moved_ms) : "–");
    cell.title = clock(one.moved_ms);
  }

  function drawRows() {
    const wanted = filter.value.trim().toLowerCase();
    rows.set(followers.filter((one) => !wanted || `${one.log} ${one.name} ${one.what}`.toLowerCase().includes(wanted)));
  }

  function draw(view) {
    followers = view.logs.flatMap((log) => log.consumers.map((one) => ({ ...one, log: log.log })));
    followers.sort((one, other) => other.lost - one.lost || other.behind - one.behind);
    setText(summary, `${count(followers.length)} followers, ${count(followers.filter((one) => one.behind).length)} of them behind`);
    drawRows();
  }

  return {
    node: el("div", { class: "view" }, el("div", { class: "tools" }, filter, summary), rows.node),
    show() {},
    read: () => refresh(app, draw, (text) => rows.fail(text)),
    tick: () => {
      for (const row of rows.body.children) if (row.item) movedCell(row.querySelector(".age"), row.item);
    },
    search: () => filter.focus(),
    keyPressed: (event) => rows.keyPressed(event),
  };
}
