// What the doctor finds about the cluster, and what to do about it.

import { refresh } from "./cluster.js";
import { el, setText } from "./dom.js";
import { count } from "./format.js";
import { Rows, pill, setPill, textCell } from "./widgets.js";

const GRADES = ["bad", "note", "good"];
const PILLS = { bad: "error", note: "delayed", good: "finished" };

export function findingsView(app) {
  const chips = el("div", { class: "chips", role: "group", "aria-label": "Grade" },
    ["", ...GRADES].map((grade) => el("button", { type: "button", class: "choice", "data-grade": grade, onclick: () => app.go(`#/findings${grade ? `/${grade}` : ""}`) }, grade || "all")));
  const filter = el("input", { type: "search", placeholder: "Filter", "aria-label": "Filter findings", oninput: () => drawRows() });
  const summary = el("p", { class: "quiet num" });
  let findings = [];
  let wantedGrade = "";
  const rows = new Rows({
    label: "Findings of the doctor",
    key: (one) => one.place,
    empty: { title: "Nothing of this kind", text: "The doctor has found nothing here." },
    columns: [
      { title: "Grade", class: "state", render: gradeCell },
      { title: "What", class: "name", render: textCell((one) => one.what) },
      { title: "What is seen", class: "said", render: textCell((one) => one.seen) },
      { title: "What to do", class: "said", render: textCell((one) => one.advice || "–") },
    ],
  });
  rows.table.classList.add("is-text");

  function gradeCell(cell, one) {
    if (!cell.firstChild) cell.append(pill(""));
    setPill(cell.firstChild, PILLS[one.grade] ?? "other");
    setText(cell.firstChild, one.grade);
  }

  function drawRows() {
    const wanted = filter.value.trim().toLowerCase();
    rows.set(findings.filter((one) => (!wantedGrade || one.grade === wantedGrade) && (!wanted || `${one.what} ${one.seen} ${one.advice}`.toLowerCase().includes(wanted))));
  }

  function draw(view) {
    const seen = new Map();
    findings = view.findings.map((one) => {
      const times = (seen.get(one.what) ?? 0) + 1;
      seen.set(one.what, times);
      return { ...one, place: `${one.what} ${times}` };
    });
    findings.sort((one, other) => GRADES.indexOf(one.grade) - GRADES.indexOf(other.grade));
    setText(summary, GRADES.map((grade) => `${count(findings.filter((one) => one.grade === grade).length)} ${grade}`).join(", "));
    drawRows();
  }

  return {
    node: el("div", { class: "view" }, el("div", { class: "tools" }, filter, chips, summary), rows.node),
    show([grade = ""]) {
      wantedGrade = GRADES.includes(grade) ? grade : "";
      for (const chip of chips.children) chip.setAttribute("aria-pressed", String(chip.dataset.grade === wantedGrade));
      if (findings.length) drawRows();
    },
    read: () => refresh(app, draw, (text) => rows.fail(text)),
    search: () => filter.focus(),
    keyPressed: (event) => rows.keyPressed(event),
  };
}
