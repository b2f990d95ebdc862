// One task in detail: what became of it, why it waits, and what can be done about it.

import { el, setText } from "./dom.js";
import { ago, clock, content, count, orDash, span } from "./format.js";
import { bar, button, confirm, pill, toast } from "./widgets.js";

export const DELETE_SAYS = "What it was and why it failed cannot be seen here any more, and it cannot be run again.";
const UNENDED = new Set(["waiting", "delayed", "running", "prepared"]);

/** `place`: where tasks are asked for, see `taskList`. */
export function taskPanel(app, place, close) {
  const title = el("h2", { id: "task-title", tabindex: "-1" });
  const state = el("span");
  const why = el("div", { class: "why", hidden: true });
  const progress = bar("Progress");
  const progressText = el("span", { class: "quiet" });
  const progressLine = el("div", { class: "progress-line", hidden: true }, progress, progressText);
  const facts = el("dl", { class: "facts" });
  const texts = el("div", { class: "texts" });
  const actions = el("div", { class: "actions" });
  const body = el("div", { class: "panel-body" }, why, progressLine, actions, facts, texts);
  const node = el("aside", { class: "panel", "aria-labelledby": "task-title", hidden: true },
    el("div", { class: "panel-head" }, title, state, el("button", { type: "button", class: "icon-button", "aria-label": "Close", title: "Close (Esc)", onclick: close }, "✕")),
    body);
  let id = 0;
  let shown = "";
  let hasFocus = false;

  async function read() {
    const wanted = id;
    if (!wanted) return;
    try {
      const task = await app.ask([...place.base, "tasks", wanted]);
      const explained = UNENDED.has(task.status) ? await app.ask([...place.base, "tasks", wanted, "explain"]).catch(() => null) : null;
      if (wanted === id) draw(task, explained);
    } catch (error) {
      if (wanted !== id) return;
      shown = "";
      state.replaceChildren();
      why.hidden = false;
      why.className = "why is-error";
      setText(why, error.message);
      for (const part of [facts, texts, actions]) part.replaceChildren();
      progressLine.hidden = true;
    }
  }

  function draw(task, explained) {
    const text = JSON.stringify([task, explained]);
    if (text === shown) return; // what somebody selects or has focused stays as it is
    shown = text;
    state.replaceChildren(pill(task.status));
    drawWhy(task, explained);
    progressLine.hidden = !(task.status === "running" && (task.progress >= 0 || task.progress_message));
    progress.hidden = task.progress < 0;
    progress.set(task.progress);
    setText(progressText, [task.progress >= 0 ? `${Math.round(task.progress * 100)} %` : "", task.progress_message].filter(Boolean).join(" · "));
    facts.replaceChildren(...factsOf(task).flatMap(([name, value, hint]) => [el("dt", {}, name), el("dd", { title: hint }, value)]));
    texts.replaceChildren(...textsOf(task));
    drawActions(task);
  }

  function drawWhy(task, explained) {
    const isError = task.status === "error";
    const text = explained && explained.reason !== "running" ? explained.text || explained.reason : isError ? task.error || task.outcome : "";
    why.hidden = !text;
    why.className = isError ? "why is-error" : "why";
    const place = explained && explained.place >= 0 ? `${count(explained.place)} of its tenant's tasks are before it.` : "";
    why.replaceChildren(el("strong", {}, isError ? orDash(task.outcome) : `Why it is ${task.status}`), el("p", {}, text), place ? el("p", { class: "quiet num" }, place) : "");
  }

  function drawActions(task) {
    const wanted = [];
    const ids = { task_ids: [task.task_id] };
    if (!place.mayChange) return;
    if (UNENDED.has(task.status)) {
      wanted.push(task.cancel_ms ? el("span", { class: "quiet" }, "Its worker is asked to end it.") : button("Cancel task", () => cancel(task), { kind: "is-danger" }));
    }
    if (place.mayReorder && ["waiting", "delayed"].includes(task.status)) wanted.push(button("Priority +1", () => change(() => app.ask([...place.base, "tasks", task.task_id], { method: "PATCH", body: { priority: task.priority + 1 } }), `Priority ${task.priority + 1}.`)));
    if (task.status === "error") {
      wanted.push(
        button("Run again", () => change(() => app.ask([...place.base, "dead-letters", "replay"], { method: "POST", body: ids }), "It waits to be run again."), { kind: "is-main" }),
        button("Delete", () => remove(task), { kind: "is-danger" }));
    }
    actions.replaceChildren(...wanted);
    actions.hidden = !wanted.length;
  }

  async function cancel(task) {
    if (await confirm(`Cancel task ${task.task_id}?`, task.status === "running" ? "Its worker is asked to end it; what it has done so far stays done." : "It will not be run.", "Cancel task")) {
      await change(() => app.ask([...place.base, "tasks", "cancel"], { method: "POST", body: { task_ids: [task.task_id] } }), "Cancelled, or asked to end.");
    }
  }

  async function remove(task) {
    if (await confirm(`Delete task ${task.task_id}?`, DELETE_SAYS, "Delete task")) {
      await change(() => app.ask([...place.base, "dead-letters", "delete"], { method: "POST", body: { task_ids: [task.task_id] } }), "Deleted.");
    }
  }

  async function change(work, done) {
    try {
      await work();
      toast(done);
    } catch (error) {
      app.fail(error);
    }
    await read();
  }

  return {
    node,
    read,
    show(wanted) {
      node.hidden = !wanted;
      if (wanted === id) return;
      id = wanted;
      shown = "";
      setText(title, wanted ? `Task ${wanted}` : "");
      for (const part of [state, facts, texts, actions]) part.replaceChildren();
      why.hidden = true;
      progressLine.hidden = true;
      hasFocus = wanted > 0;
      if (hasFocus) title.focus({ preventScroll: true });
      read();
    },
  };
}

function factsOf(task) {
  const at = (ms) => [ms ? `${clock(ms)} (${ago(ms)}${ms < Date.now() ? " ago" : ""})` : "–"];
  const resources = Object.entries(task.resources).map(([name, amount]) => `${name} ${amount}`).join(", ");
  const ran = task.assigned_ms && task.ended_ms > task.assigned_ms ? span(task.ended_ms - task.assigned_ms) : "";
  const all = [
    ["Type", task.type],
    ["Tenant", task.tenant],
    ["Attempts", task.max_attempts ? `${task.attempts} of ${task.max_attempts}` : `${task.attempts}, as many as it takes`],
    ["Semantics", task.at_most_once ? "at most once" : "at least once"],
    ["Priority", String(task.priority)],
    ["Group", String(task.group)],
    ["Resources", resources],
    ["Slot", task.slot],
    ["Key", task.key],
    ["Submitted", ...at(task.created_ms)],
    ["Not before", task.start_ms ? at(task.start_ms)[0] : ""],
    ["Goes on", task.due_ms ? at(task.due_ms)[0] : ""],
    ["Deadline", task.deadline_ms ? at(task.deadline_ms)[0] : ""],
    ["Worker", task.worker_id],
    ["Assigned", task.assigned_ms ? at(task.assigned_ms)[0] : ""],
    ["Ended", task.ended_ms ? at(task.ended_ms)[0] : ""],
    ["Ran for", ran],
    ["Outcome", task.outcome],
    ["Longest run", task.timeout_ms ? span(task.timeout_ms) : ""],
    ["Heartbeat", task.heartbeat_ms ? span(task.heartbeat_ms) : ""],
    ["Code", task.code],
    ["Transaction", task.transaction ? String(task.transaction) : ""],
    ["Assignment", task.assignment_id ? String(task.assignment_id) : ""],
  ];
  return all.filter(([, value]) => value !== "" && value !== undefined);
}

function textsOf(task) {
  const block = (name, text, encoded) => {
    if (encoded !== undefined && encoded !== null) return [el("h3", {}, `${name}, as base64`), el("pre", { tabindex: "0", "aria-label": name }, content(encoded))];
    return text ? [el("h3", {}, name), el("pre", { tabindex: "0", "aria-label": name }, content(text))] : [];
  };
  return [
    ...(task.error ? [el("h3", {}, "Error"), el("pre", { tabindex: "0", "aria-label": "Error" }, content(task.error))] : []),
    ...block("Payload", task.payload_gone ? "It has left the broker: the task cannot run again." : task.payload, task.payload_base64),
    ...(task.status === "finished" ? block("Result", task.result, task.result_base64) : []),
  ];
}
