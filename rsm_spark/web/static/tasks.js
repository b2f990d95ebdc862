// Tasks: searched, paged, dead letters chosen to be run again or deleted, one task in detail beside the list.

import { el, setText } from "./dom.js";
import { ago, clock, orDash } from "./format.js";
import { DELETE_SAYS, taskPanel } from "./task.js";
import { Pages, Rows, button, confirm, pill, setPill, textCell, toast } from "./widgets.js";

const STATUSES = ["waiting", "running", "delayed", "finished", "error", "cancelled", "prepared"];
const FILTERS = ["status", "type", "tenant", "worker", "slot", "key"];
const PAGE = 50;

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

/** `place`: {base, root, isMine, mayChange, mayReorder}.
 *
 * `base`: what the path of a request begins with, before "tasks" and "dead-letters". `root`: how the address of the view
 * begins. `isMine(name)`: whether an event of this name is about tasks. `mayChange`: the caller may act on them;
 * `mayReorder`: and change their priority.
 */
export function taskList(app, place) {
  const search = el("input", { type: "search", class: "search", placeholder: "Id, type, or status: type: tenant: worker: slot: key:", "aria-label": "Search tasks", spellcheck: "false", autocomplete: "off", autocapitalize: "off" });
  const form = el("form", { role: "search", onsubmit: (event) => { event.preventDefault(); submit(); } }, search);
  const chips = el("div", { class: "chips", role: "group", "aria-label": "Status" },
    ["", ...STATUSES].map((status) => el("button", { type: "button", class: "choice", "data-status": status, onclick: () => choose(status) }, status || "all")));
  const pages = new Pages(["Newer", "Older"], () => read());
  const panel = taskPanel(app, place, () => app.go(address(place, text, 0)));
  const picked = new Set(); // dead letters, by id
  const pickedText = el("span", { class: "num", role: "status" });
  const pickAll = button("All dead letters shown", () => pick(deadShown()), { kind: "is-small", title: "Choose all dead letters shown" });
  const acts = [
    button("Run again", () => replay(), { kind: "is-small is-main" }),
    button("Delete", () => remove(), { kind: "is-small is-danger" }),
    button("Choose none", () => pick([]), { kind: "is-small" }),
  ];
  const bulk = el("div", { class: "bulk", role: "group", "aria-label": "Dead letters", hidden: true }, pickAll, pickedText, acts);
  let text = "";
  let chosen = 0;
  let newest = 0; // of what was asked last: answers that come late are dropped

  const rows = new Rows({
    label: "Tasks, newest first",
    key: (one) => one.task_id,
    open: (one) => app.go(address(place, text, one.task_id)),
    empty: { title: "No tasks", text: "Nothing fits this search." },
    columns: [
      ...(place.mayChange ? [{ title: "Choose", class: "pick", render: pickCell }] : []),
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
      bulk,
      rows.node,
      pages.node),
    panel.node);

  function ageCell(cell, one) {
    setText(cell, ago(one.created_ms));
    cell.title = clock(one.created_ms);
  }

  // ---- dead letters that are chosen

  function pickCell(cell, one) {
    const isDead = one.status === "error";
    if (!cell.firstChild) cell.append(el("input", { type: "checkbox", onchange: (event) => toggle(cell.parentNode.item, event.target.checked) }));
    const box = cell.firstChild;
    box.hidden = !isDead;
    cell.classList.toggle("is-none", !isDead);
    box.checked = isDead && picked.has(one.task_id);
    box.setAttribute("aria-label", `Choose task ${one.task_id}`);
  }

  function toggle(one, isPicked) {
    if (one?.status !== "error") return;
    if (isPicked) picked.add(one.task_id);
    else picked.delete(one.task_id);
    drawPicked();
  }

  function deadShown() {
    return [...rows.body.children].filter((row) => row.item?.status === "error").map((row) => row.item.task_id);
  }

  function pick(ids) {
    picked.clear();
    for (const id of ids) picked.add(id);
    drawPicked();
  }

  function drawPicked() {
    const shown = new Set(place.mayChange ? deadShown() : []);
    for (const id of picked) if (!shown.has(id)) picked.delete(id); // Nobody acts on what is not seen.
    for (const row of rows.body.children) if (row.item) {
      const box = row.querySelector(".pick input");
      if (box) box.checked = picked.has(row.item.task_id);
    }
    bulk.hidden = shown.size === 0;
    for (const node of [pickedText, ...acts]) node.hidden = picked.size === 0;
    setText(pickedText, `${picked.size} chosen`);
  }

  function replay() {
    const ids = [...picked].sort((one, other) => one - other);
    return act(ids, ["dead-letters", "replay"], `Run ${many(ids)} again?`, "Their attempts begin anew. All of them wait again, or none.", "Run again", (done) => `${done.count} wait to be run again.`);
  }

  function remove() {
    const ids = [...picked].sort((one, other) => one - other);
    return act(ids, ["dead-letters", "delete"], `Delete ${many(ids)}?`, DELETE_SAYS, "Delete", (done) => `${done.count} deleted${done.passed_over ? `, ${done.passed_over} were no dead letters any more` : ""}.`);
  }

  async function act(ids, path, title, said, yes, told) {
    if (!ids.length || !(await confirm(title, said, yes))) return;
    try {
      toast(told(await app.ask([...place.base, ...path], { method: "POST", body: { task_ids: ids } })));
      picked.clear();
    } catch (error) {
      app.fail(error);
    }
    await Promise.all([read(), panel.read()]);
  }

  function pickByKey(event) {
    const row = document.activeElement?.closest?.("tr");
    if (event.key !== "x" || !row?.item || !place.mayChange) return false;
    toggle(row.item, !picked.has(row.item.task_id));
    return true;
  }

  function submit() {
    const { id, query } = parseSearch(search.value);
    search.blur();
    app.go(address(place, id ? writeSearch(query) : search.value.trim(), id));
  }

  function choose(status) {
    const { query } = parseSearch(text);
    app.go(address(place, writeSearch({ ...query, status }), 0));
  }

  async function read() {
    const { query } = parseSearch(text);
    const asked = (newest += 1);
    try {
      const page = await app.ask([...place.base, "tasks"], { query: { ...query, order: "newest", limit: PAGE, after: pages.after } });
      if (asked !== newest) return;
      rows.set(page.tasks);
      drawPicked();
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
    read: (names) => (names.has("*") || [...names].some(place.isMine) ? Promise.all([pages.isFirst || names.has("*") ? read() : undefined, panel.read()]) : undefined),
    tick: () => {
      for (const row of rows.body.children) if (row.item) ageCell(row.querySelector(".age"), row.item);
    },
    search: () => search.select(),
    close: () => {
      if (!chosen) return;
      const row = rows.body.querySelector(`tr[data-key="${chosen}"]`);
      app.go(address(place, text, 0));
      row?.focus();
    },
    keyPressed: (event) => pages.keyPressed(event) || rows.keyPressed(event) || pickByKey(event),
  };
}

function many(ids) {
  return ids.length === 1 ? `task ${ids[0]}` : `${ids.length} tasks`;
}

function address(place, text, id) {
  return `${place.root}${id ? `/${id}` : ""}${text ? `?q=${encodeURIComponent(text)}` : ""}`;
}

function said(one) {
  if (one.error) return one.outcome ? `${one.outcome}: ${one.error}` : one.error;
  if (one.outcome) return one.outcome;
  if (one.status === "running" && one.progress >= 0) return `${Math.round(one.progress * 100)} % ${one.progress_message}`;
  return one.progress_message || "–";
}
