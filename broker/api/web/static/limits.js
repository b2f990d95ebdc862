// What holds tasks back: limits of resources, and holds.

import { el, setText } from "./dom.js";
import { clock, count } from "./format.js";
import { Rows, bar, button, textCell, toast } from "./widgets.js";

export function limitsView(app) {
  const any = (text) => text || "any";
  const resources = new Rows({
    label: "Resources",
    key: (one) => JSON.stringify([one.resource, one.tenant, one.type]),
    empty: { title: "No resources", text: "A resource is here once it has a limit, or a running task holds some of it." },
    columns: [
      { title: "Resource", class: "name", render: textCell((one) => one.resource) },
      { title: "Tenant", class: "wide", render: textCell((one) => any(one.tenant)) },
      { title: "Type", class: "wide", render: textCell((one) => any(one.type)) },
      { title: "In use", class: "share", render: useCell },
      { title: "Limit", class: "num", render: textCell((one) => (one.amount_max === null ? "none" : count(one.amount_max))) },
    ],
  });
  const holds = new Rows({
    label: "Holds",
    key: (one) => JSON.stringify([one.tenant, one.type, one.key]),
    empty: { title: "Nothing is held", text: "Tasks can be paused or drained by tenant, type and key." },
    columns: [
      { title: "Tenant", class: "name", render: textCell((one) => any(one.tenant)) },
      { title: "Type", class: "wide", render: textCell((one) => any(one.type)) },
      { title: "Key", class: "wide", render: textCell((one) => any(one.key)) },
      { title: "State", class: "state", render: stateCell },
      { title: "Until", class: "wide", render: textCell((one) => (one.until_ms ? clock(one.until_ms) : "it is resumed")) },
      { title: "Why", class: "wide", render: textCell((one) => one.reason || "–") },
      { title: "", class: "state", render: resumeCell },
    ],
  });
  const node = el("div", { class: "view" },
    el("section", { "aria-labelledby": "resources-title" }, el("h2", { id: "resources-title" }, "Resources"), resources.node),
    el("section", { "aria-labelledby": "holds-title" }, el("h2", { id: "holds-title" }, "Holds"), holds.node));

  function useCell(cell, one) {
    if (!cell.firstChild) cell.append(warning(bar("In use")), el("span", { class: "num share-text" }));
    cell.firstChild.hidden = one.amount_max === null;
    cell.firstChild.set(one.amount_max ? one.used / one.amount_max : 0, `${one.resource}: ${one.used} of ${one.amount_max ?? "no limit"}`);
    setText(cell.lastChild, count(one.used));
  }

  function stateCell(cell, one) {
    if (!cell.firstChild) cell.append(el("span", { class: "pill" }));
    const word = one.is_paused ? "paused" : "draining";
    cell.firstChild.className = `pill pill-${word}`;
    setText(cell.firstChild, word);
  }

  function resumeCell(cell, one) {
    if (!cell.firstChild) cell.append(button("Resume", () => release(cell.closest("tr").item), { kind: "is-small" }));
    cell.firstChild.setAttribute("aria-label", `Resume tenant ${any(one.tenant)}, type ${any(one.type)}, key ${any(one.key)}`);
  }

  async function release(one) {
    try {
      await app.ask(["holds"], { method: "DELETE", query: { tenant: one.tenant, type: one.type, key: one.key } });
      toast("Resumed.");
    } catch (error) {
      app.fail(error);
    }
    await read();
  }

  async function read() {
    try {
      const found = await app.ask(["limits"]);
      resources.set(found.resources);
      holds.set(found.holds);
    } catch (error) {
      resources.fail(error.message);
      holds.fail(error.message);
    }
  }

  function warning(meter) {
    meter.classList.add("warns");
    return meter;
  }

  return { node, show() {}, read, keyPressed: (event) => (holds.node.contains(document.activeElement) ? holds : resources).keyPressed(event) };
}
