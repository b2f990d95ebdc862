// Who does the work.

import { el, setText } from "./dom.js";
import { ago, clock, count, orDash } from "./format.js";
import { Rows, bar, pill, setPill, textCell } from "./widgets.js";

export function workersView(app) {
  const filter = el("input", { type: "search", placeholder: "Filter by name or place", "aria-label": "Filter workers", oninput: () => draw() });
  const summary = el("p", { class: "quiet num" });
  let workers = [];
  const rows = new Rows({
    label: "Workers",
    key: (one) => one.worker_id,
    open: (one) => app.go(`#/tasks?q=${encodeURIComponent(`worker:${one.worker_id} status:running`)}`),
    empty: { title: "No workers", text: "rsm worker run connects one." },
    columns: [
      { title: "Worker", class: "name", render: textCell((one) => one.worker_id) },
      { title: "State", class: "state", render: (cell, one) => (cell.firstChild ? setPill(cell.firstChild, one.status) : cell.append(pill(one.status))) },
      { title: "Threads in use", class: "share", render: threadsCell },
      { title: "Runs", class: "wide runs", render: textCell((one) => orDash(Object.entries(one.running_by_type).map(([type, amount]) => `${type} ${amount}`).join(", "))) },
      { title: "Takes", class: "wide", render: textCell(takes) },
      { title: "Groups", class: "num", render: textCell((one) => one.offer.groups.map((group) => group || "any").join(", ")) },
      { title: "Place", class: "wide", render: textCell((one) => orDash(one.location)) },
      { title: "Connected", class: "num", render: connectedCell },
    ],
  });
  const node = el("div", { class: "view" }, el("div", { class: "tools" }, filter, summary), rows.node);

  function threadsCell(cell, one) {
    if (!cell.firstChild) cell.append(bar("Threads"), el("span", { class: "num share-text" }));
    const most = one.offer.threads_max;
    cell.firstChild.set(most ? one.running / most : 0, `${one.worker_id}: ${one.running} of ${most} threads`);
    setText(cell.lastChild, `${count(one.running)} / ${count(most)}`);
  }

  function connectedCell(cell, one) {
    setText(cell, ago(one.connected_ms));
    cell.title = clock(one.connected_ms);
  }

  function draw() {
    const wanted = filter.value.trim().toLowerCase();
    const shown = workers.filter((one) => !wanted || `${one.worker_id} ${one.location}`.toLowerCase().includes(wanted));
    rows.set(shown);
    const threads = workers.reduce((sum, one) => sum + (one.status === "connected" ? one.offer.threads_max : 0), 0);
    setText(summary, `${count(shown.length)} workers, ${count(threads)} threads connected`);
  }

  return {
    node,
    show() {},
    async read() {
      try {
        workers = (await app.ask(["workers"])).workers;
        draw();
      } catch (error) {
        rows.fail(error.status === 403 || error.status === 404 ? "Workers are the cluster's: only an administrator sees them." : error.message);
      }
    },
    tick: () => workers.length && draw(),
    search: () => filter.focus(),
    keyPressed: (event) => rows.keyPressed(event),
  };
}

function takes(one) {
  const types = Object.entries(one.offer.threads_by_type ?? {}).map(([type, most]) => `${type} ${most}`);
  const any = one.offer.any_type_threads;
  if (any || (!types.length && any !== 0)) types.push("any type");
  const resources = Object.entries(one.offer.resources ?? {}).map(([name, amount]) => `${name} ${amount}`);
  return [...types, ...resources].join(", ");
}
