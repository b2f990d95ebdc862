// Tasks: searched, paged, one of them in detail beside the list.

import { el, setText } from "./dom.js";
import { ago, clock, orDash } from "./format.js";
import { taskPanel } from "./task.js";
import { Pages, Rows, pill, setPill, textCell } from "./widgets.js";

const STATUSES = ["waiting", "running", "delayed", "finished", "error", "cancelled", "prepared"];
const FILTERS = ["status", "type", "tenant", "worker", "slot", "key"];
const PAGE = 50;
const MINE = /^(task_|progress_|state_|transaction_|\*)/;

/** Read "mail status:error tenant:acme": a word without a name is a type, a number an id. */
export function parseSearch(text) {
  const found = { query: {}, id: 0 };
  for (const [word] of text.matchAll(/[^\s"]*"[^"]*"|\S+/g)) {
    const colon = word.indexOf(":");
    const name = colon > 0 ? word.slice(0, colon) : "";
    if (/^#?\d+$/.test(word)) found.id = Number(word.replace("#", ""));
    else if (FILTERS.includes(name)) found.query[name] = word.slice(colon + 1).replaceAll('"', "");
    else found.query.type = word.replaceAll('"', "");
  }
  return found;
}

function writeSearch(query) {
  return FILTERS.filter((name) => query[name]).map((name) => `${name}:${/\s/.test(query[name]) ? `"${query[name]}"` : query[name]}`).join(" ");
}

export function tasksView(app) {
  const search = el("input", { type: "search", class: "search", placeholder: "Id, type, or status: type: tenant: worker: slot: key:", "aria-label": "Search tasks", spellcheck: "false", autocomplete: "off", autocapitalize: "off" });
  const form = el("form", { role: "search", onsubmit: (event) => { event.preventDefault(); submit(); } }, search);
  const chips = el("div", { class: "chips", role: "group", "aria-label": "Status" },
    ["", ...STATUSES].map((status) => el("button", { type: "button", class: "choice", "data-status": status, onclick: () => choose(status) }, status || "all")));
  const pages = new Pages(["Newer", "Older"], () => read());
  const panel = taskPanel(app, () => app.go(address(text, 0)));
  let text = "";
  let chosen = 0;
  let newest = 0; // of what was asked last: answers that come late are dropped

  const rows = new Rows({
    label: "Tasks, newest first",
    key: (one) => one.task_id,
    open: (one) => app.go(address(text, one.task_id)),
    empty: { title: "No tasks", text: "Nothing fits this search." },
    columns: [
      { title: "Id", class: "num id", render: textCell((one) => one.task_id) },
      { title: "Status", class: "state", render: (cell, one) => (cell.firstChild ? setPill(cell.firstChild, one.status) : cell.append(pill(one.status))) },
      { title: "Type", class: "name", render: textCell((one) => one.type) },
      { title: "Tenant", class: "wide", render: textCell((one) => one.tenant) },
      { title: "Priority", class: "num narrow", render: textCell((one) => one.priority) },
      { title: "Attempts", class: "num narrow", render: textCell((one) => (one.max_attempts ? `${one.attempts} of ${one.max_attempts}` : one.attempts)) },
      { title: "Age", class: "num age", render: ageCell },
      { title: "Worker", class: "wide", render: textCell((one) => orDash(one.worker_id)) },
      { title: "What is said of it", class: "wide said", render: textCell(said) },
    ],
  });
  const node = el("div", { class: "view split" },
    el("div", { class: "split-list" },
      el("div", { class: "tools" }, form, chips),
      rows.node,
      pages.node),
    panel.node);

  function ageCell(cell, one) {
    setText(cell, ago(one.created_ms));
    cell.title = clock(one.created_ms);
  }

  function submit() {
    const { id, query } = parseSearch(search.value);
    search.blur();
    app.go(address(id ? writeSearch(query) : search.value.trim(), id));
  }

  function choose(status) {
    const { query } = parseSearch(text);
    app.go(address(writeSearch({ ...query, status }), 0));
  }

  async function read() {
    const { query } = parseSearch(text);
    const asked = (newest += 1);
    try {
      const page = await app.ask(["tasks"], { query: { ...query, order: "newest", limit: PAGE, after: pages.after } });
      if (asked !== newest) return;
      rows.set(page.tasks);
      for (const row of rows.body.children) row.classList.toggle("is-chosen", row.dataset.key === String(chosen));
      pages.set(page.next, page.tasks.length ? `${page.tasks[0].task_id} to ${page.tasks.at(-1).task_id}` : "");
    } catch (error) {
      if (asked === newest) rows.fail(error.message);
    }
  }

  return {
    node,
    show(rest, query) {
      const wanted = query.q ?? "";
      if (wanted !== text || !search.value) search.value = wanted;
      const changed = wanted !== text;
      text = wanted;
      chosen = Number(rest[0]) || 0;
      const { status } = parseSearch(text).query;
      for (const chip of chips.children) chip.setAttribute("aria-pressed", String((status ?? "") === chip.dataset.status));
      node.classList.toggle("has-panel", chosen > 0);
      panel.show(chosen);
      for (const row of rows.body.children) row.classList.toggle("is-chosen", row.dataset.key === String(chosen));
      if (changed) {
        pages.reset();
        read();
      }
    },
    read: (names) => ([...names].some((name) => MINE.test(name)) ? Promise.all([pages.isFirst || names.has("*") ? read() : undefined, panel.read()]) : undefined),
    tick: () => {
      for (const row of rows.body.children) if (row.item) ageCell(row.querySelector(".age"), row.item);
    },
    search: () => search.select(),
    close: () => {
      if (!chosen) return;
      const row = rows.body.querySelector(`tr[data-key="${chosen}"]`);
      app.go(address(text, 0));
      row?.focus();
    },
    keyPressed: (event) => pages.keyPressed(event) || rows.keyPressed(event),
  };
}

function address(text, id) {
  return `#/tasks${id ? `/${id}` : ""}${text ? `?q=${encodeURIComponent(text)}` : ""}`;
}

function said(one) {
  if (one.error) return one.outcome ? `${one.outcome}: ${one.error}` : one.error;
  if (one.outcome) return one.outcome;
  if (one.status === "running" && one.progress >= 0) return `${Math.round(one.progress * 100)} % ${one.progress_message}`;
  return one.progress_message || "–";
}
