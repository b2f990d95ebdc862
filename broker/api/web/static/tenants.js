// Who gets how much: shares, backlogs, waits; the weight is changed where it stands.

import { el, setText } from "./dom.js";
import { count, percent, span } from "./format.js";
import { Pages, Rows, bar, textCell, toast } from "./widgets.js";

const PAGE = 200;
const MINE = /^(tenant_|hold_|task_|transaction_|\*)/;

export function tenantsView(app) {
  const filter = el("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter tenants by name", oninput: () => (pages.isOnly && !wanted ? draw() : find()) });
  const summary = el("p", { class: "quiet num" });
  const editor = el("input", { type: "number", class: "weight-input", min: "0.001", step: "any", "aria-label": "Weight" });
  let tenants = [];
  let holds = [];
  let editing = null;
  let wanted = ""; // a tenant that is looked for by its whole name, as there are more than one page of them
  const pages = new Pages(["Previous", "Next"], () => read());

  const number = (read) => (cell, item) => {
    const value = read(item);
    setText(cell, value ? count(value) : "–");
    cell.classList.toggle("is-none", !value);
    cell.classList.toggle("quiet", !value);
  };
  const rows = new Rows({
    label: "Tenants",
    key: (one) => one.tenant,
    open: (one) => app.go(`#/tasks?q=${encodeURIComponent(`tenant:${one.tenant}`)}`),
    empty: { title: "No tenants", text: "A tenant is here once it has a policy or a task that has not ended." },
    columns: [
      { title: "Tenant", class: "name", render: textCell((one) => one.tenant) },
      { title: "Weight", class: "num weight", render: weightCell },
      { title: "Share of what runs", class: "share", render: shareCell },
      { title: "Running", class: "num", render: (cell, one) => setText(cell, one.policy.running_max ? `${count(one.by_status.running)} of ${count(one.policy.running_max)}` : count(one.by_status.running)) },
      { title: "Backlog", class: "num", render: number((one) => (one.by_status.waiting ?? 0) + (one.by_status.delayed ?? 0)) },
      { title: "Dead letters", class: "num", render: number((one) => one.by_status.error) },
      { title: "Wait p50", class: "num", render: (cell, one) => setText(cell, span(one.wait_ms_p50)) },
      { title: "Wait p99", class: "num", render: (cell, one) => setText(cell, span(one.wait_ms_p99)) },
      { title: "Tasks are", class: "state hold", render: holdCell },
    ],
  });
  const node = el("div", { class: "view" }, el("div", { class: "tools" }, filter, summary), rows.node, pages.node);

  function weightCell(cell, one) {
    if (editing === one.tenant) return;
    if (!cell.firstChild?.matches?.("button")) {
      cell.replaceChildren(el("button", { type: "button", class: "editable", onclick: (event) => edit(event.currentTarget.closest("tr")) }));
    }
    const shown = String(+one.policy.weight.toPrecision(6));
    setText(cell.firstChild, shown);
    cell.firstChild.setAttribute("aria-label", `Weight of ${one.tenant}: ${shown}. Change it`);
  }

  function shareCell(cell, one) {
    if (!cell.firstChild) cell.append(bar("Share"), el("span", { class: "num share-text" }));
    cell.firstChild.set(one.share, `Share of ${one.tenant}: ${percent(one.share)}`);
    setText(cell.lastChild, percent(one.share));
  }

  function holdCell(cell, one) {
    const held = holds.find((hold) => hold.tenant === one.tenant && !hold.type && !hold.key);
    if (!cell.firstChild) cell.append(el("span", { class: "pill" }), el("button", { type: "button", class: "link" }));
    const [word, button] = cell.children;
    const state = held?.is_paused ? "paused" : held?.is_draining ? "draining" : "dispatched";
    word.className = `pill pill-${state}`;
    setText(word, state);
    word.title = held?.reason ?? "";
    setText(button, held ? "Resume" : "Pause");
    button.setAttribute("aria-label", `${held ? "Resume" : "Pause"} ${one.tenant}`);
    button.onclick = () => change(held
      ? () => app.ask(["holds"], { method: "DELETE", query: { tenant: one.tenant } })
      : () => app.ask(["holds"], { method: "PUT", query: { tenant: one.tenant }, body: { is_paused: true, reason: "paused from the dashboard" } }),
    `${one.tenant}: ${held ? "resumed" : "paused"}`);
  }

  function edit(row) {
    const one = row.item;
    const cell = row.querySelector(".weight");
    editing = one.tenant;
    editor.value = String(one.policy.weight);
    editor.onkeydown = (event) => {
      if (event.key === "Enter") save(row);
      else if (event.key === "Escape") stop(row);
      event.stopPropagation();
    };
    editor.onblur = () => stop(row);
    cell.replaceChildren(editor);
    editor.focus();
    editor.select();
  }

  function stop(row) {
    if (!editing) return;
    editing = null;
    editor.onblur = null;
    weightCell(row.querySelector(".weight"), row.item);
    row.focus();
  }

  async function save(row) {
    const one = row.item;
    const weight = Number(editor.value);
    stop(row);
    if (!(weight > 0)) {
      toast("A weight is a number above 0.", "is-error");
      return;
    }
    await change(() => app.ask(["tenants", one.tenant], { method: "PUT", body: { ...one.policy, weight } }), `${one.tenant}: weight ${weight}, from the next dispatch on`);
  }

  async function change(work, done) {
    try {
      await work();
      toast(done);
    } catch (error) {
      if (error.status === 403) toast("Only an administrator may change this.", "is-error");
      else app.fail(error);
    }
    await read();
  }

  function find() {
    wanted = filter.value.trim();
    pages.reset();
    read();
  }

  function draw() {
    const part = wanted ? "" : filter.value.trim().toLowerCase();
    const shown = part ? tenants.filter((one) => one.tenant.toLowerCase().includes(part)) : tenants;
    rows.set(shown);
    pages.node.hidden = pages.isOnly;
    const some = shown.length === tenants.length ? count(tenants.length) : `${count(shown.length)} of ${count(tenants.length)}`;
    setText(summary, pages.isOnly ? `${some} tenants` : wanted ? "" : `${some} tenants on this page; a whole name finds any`);
  }

  async function read() {
    try {
      const query = wanted ? { tenant: wanted } : { limit: PAGE, after: pages.after };
      const [page, limits] = await Promise.all([app.ask(["tenants"], { query }), app.ask(["limits"])]);
      tenants = page.tenants;
      pages.set(page.next, tenants.length ? `${tenants[0].tenant} to ${tenants.at(-1).tenant}` : "");
      holds = limits.holds;
      draw();
    } catch (error) {
      rows.fail(error.message);
    }
  }

  return {
    node,
    show() {},
    read: (names) => ([...names].some((name) => MINE.test(name)) ? read() : undefined),
    search: () => filter.focus(),
    keyPressed: (event) => {
      if (event.key === "e" && document.activeElement?.matches("tr")) {
        edit(document.activeElement);
        return true;
      }
      return pages.keyPressed(event) || rows.keyPressed(event);
    },
  };
}
