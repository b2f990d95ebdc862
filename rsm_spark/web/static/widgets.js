// Parts that several views are made of.

import { el, icon, reconcile, setText, svg } from "./dom.js";
import { count } from "./format.js";

export function pill(status) {
  return el("span", { class: `pill pill-${/^[a-z]+$/.test(status) ? status : "other"}` }, status);
}

export function setPill(node, status) {
  setText(node, status);
  node.className = `pill pill-${/^[a-z]+$/.test(status) ? status : "other"}`;
}

/** A bar that is filled by a share, 0 to 1. */
export function bar(label) {
  const node = el("span", { class: "meter", role: "img", "aria-label": label }, el("span", { class: "meter-fill" }));
  node.set = (share, said) => {
    const whole = Math.max(0, Math.min(1, share || 0));
    node.firstChild.style.setProperty("--share", `${(whole * 100).toFixed(1)}%`);
    node.classList.toggle("is-full", whole >= 1);
    node.setAttribute("aria-label", said ?? `${label}: ${Math.round(whole * 100)} %`);
  };
  return node;
}

/** Two lines over the last minute, with their highest value named. */
export function sparkline(title) {
  const paths = ["ended", "submitted"].map((name) => svg("path", { class: `spark-line spark-${name}` }));
  const area = svg("path", { class: "spark-area" });
  const top = el("span", { class: "spark-top num" });
  const chart = svg("svg", { viewBox: "0 0 590 100", preserveAspectRatio: "none", role: "img", "aria-label": title }, area, ...paths);
  const node = el("div", { class: "spark" }, chart, top);
  node.set = ({ submitted, ended, seconds }) => {
    const high = Math.max(5, ...submitted, ...ended);
    const step = 590 / (seconds - 1);
    const x = (place) => (590 - (ended.length - 1 - place) * step).toFixed(1);
    const line = (values) => values.map((value, place) => `${place ? "L" : "M"}${x(place)} ${(98 - (value / high) * 92).toFixed(1)}`).join("");
    paths[0].setAttribute("d", line(ended));
    paths[1].setAttribute("d", line(submitted));
    area.setAttribute("d", ended.length ? `${line(ended)}L590 100L${x(0)} 100Z` : "");
    setText(top, `${count(high)}/s`);
  };
  return node;
}

/** A table whose rows are walked by the keyboard; `columns`: {title, class, render(cell, item)}. */
export class Rows {
  constructor({ label, columns, key, open, empty }) {
    this.columns = columns;
    this.key = key;
    this.open = open;
    this.body = el("tbody");
    this.body.addEventListener("focusin", (event) => this.#stop(event.target.closest("tr")));
    const heads = columns.map((column) => el("th", { scope: "col", class: column.class ?? "" }, column.title));
    this.table = el("table", { class: "rows", "aria-label": label }, el("thead", {}, el("tr", {}, heads)), this.body);
    this.message = el("div", { class: "message", role: "status", hidden: true });
    this.empty = empty;
    this.node = el("div", { class: "table-wrap is-loading" }, this.table, this.message);
    for (let line = 0; line < 6; line += 1) {
      this.body.append(el("tr", { class: "skeleton", "aria-hidden": "true" }, columns.map((column) => el("td", { class: column.class ?? "" }, el("span", { class: "bone" })))));
    }
  }

  set(items) {
    this.node.classList.remove("is-loading", "is-stale");
    this.body.querySelectorAll(".skeleton").forEach((row) => row.remove());
    reconcile(this.body, items, this.key, (item) => this.#create(item), (row, item) => this.#update(row, item));
    if (!this.body.querySelector('[tabindex="0"]')) this.body.firstElementChild?.setAttribute("tabindex", "0");
    this.#say(items.length ? null : this.empty);
  }

  /** What was read before stays to be seen, dimmed, below what went wrong. */
  fail(text) {
    this.node.classList.remove("is-loading");
    this.node.classList.add("is-stale");
    this.body.querySelectorAll(".skeleton").forEach((row) => row.remove());
    this.#say({ title: "This could not be read", text }, "is-error");
  }

  #say(said, kind = "") {
    this.message.hidden = !said;
    this.message.className = `message ${kind}`;
    this.message.replaceChildren(...(said ? [el("strong", {}, said.title), el("p", {}, said.text)] : []));
  }

  #create(item) {
    const row = el("tr", { tabindex: "-1" }, this.columns.map((column) => el("td", { class: column.class ?? "", "data-title": column.title })));
    if (this.open) {
      row.classList.add("can-open");
      row.addEventListener("click", (event) => event.target.closest("button, a, input") || this.open(row.item));
    }
    row.item = item;
    return row;
  }

  #update(row, item) {
    row.item = item;
    this.columns.forEach((column, place) => column.render(row.children[place], item));
  }

  #stop(row) {
    if (!row) return;
    this.body.querySelectorAll('[tabindex="0"]').forEach((other) => other.setAttribute("tabindex", "-1"));
    row.setAttribute("tabindex", "0");
  }

  /** Move the focus by some rows; with none focused, to the first one. */
  move(step) {
    const rows = [...this.body.querySelectorAll("tr[tabindex]")];
    if (!rows.length) return;
    const at = rows.indexOf(document.activeElement?.closest?.("tr"));
    const next = rows[at < 0 ? 0 : Math.max(0, Math.min(rows.length - 1, at + step))];
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  }

  /** Handle a key of the list; returns whether it was one. */
  keyPressed(event) {
    if (event.key === "j" || event.key === "ArrowDown") this.move(1);
    else if (event.key === "k" || event.key === "ArrowUp") this.move(-1);
    else if (event.key === "Home" && this.body.contains(document.activeElement)) this.move(-Infinity);
    else if (event.key === "End" && this.body.contains(document.activeElement)) this.move(Infinity);
    else if (event.key === "Enter" && this.open && document.activeElement?.matches("tr")) this.open(document.activeElement.item);
    else return false;
    return true;
  }
}

/** Pages one after the other, each known by what comes before it; `read` is called when another one is wanted. */
export class Pages {
  #stack = [""];
  #next = null;

  constructor(words, read) {
    this.read = read;
    this.place = el("span", { class: "quiet num" });
    this.previous = button(words[0], () => this.turn(-1), { kind: "is-small", title: `${words[0]} (p)` });
    this.next = button(words[1], () => this.turn(1), { kind: "is-small", title: `${words[1]} (n)` });
    this.node = el("div", { class: "pager" }, this.place, this.previous, this.next);
    this.set(null, "");
  }

  /** What the page that is shown begins after; "" for the first. */
  get after() {
    return this.#stack.at(-1);
  }

  get isFirst() {
    return this.#stack.length === 1;
  }

  get isOnly() {
    return this.isFirst && this.#next === null;
  }

  reset() {
    this.#stack = [""];
  }

  set(next, place) {
    this.#next = next ?? null;
    setText(this.place, place);
    this.previous.disabled = this.isFirst;
    this.next.disabled = this.#next === null;
  }

  turn(step) {
    if (step > 0 && this.#next !== null) this.#stack.push(this.#next);
    else if (step < 0 && !this.isFirst) this.#stack.pop();
    else return;
    this.read();
  }

  keyPressed(event) {
    if (event.key === "n") this.turn(1);
    else if (event.key === "p") this.turn(-1);
    else return false;
    return true;
  }
}

/** A cell of text that says whole what it cuts. */
export function textCell(read) {
  return (cell, item) => {
    const text = String(read(item));
    setText(cell, text);
    cell.classList.toggle("is-none", text === "–");
    if (cell.title !== text) cell.title = text;
  };
}

export function button(label, act, { kind = "", title, path } = {}) {
  return el("button", { type: "button", class: `button ${kind}`, onclick: act, title }, path ? icon(path) : null, label);
}

/** Ask before something is done that cannot be undone; resolves to whether it may. */
export function confirm(title, text, yes) {
  return dialog(title, (close) => [
    el("p", {}, text),
    el("div", { class: "dialog-end" }, button("Not now", () => close(false)), button(yes, () => close(true), { kind: "is-danger" })),
  ], false);
}

/** Show a modal dialog; `make(close)` returns its contents. */
export function dialog(title, make, otherwise) {
  return new Promise((resolve) => {
    let result = otherwise;
    const node = el("dialog", { "aria-labelledby": "dialog-title" });
    const close = (value) => {
      result = value;
      node.close();
    };
    node.append(el("h2", { id: "dialog-title" }, title), ...make(close));
    node.addEventListener("close", () => {
      node.remove();
      resolve(result);
    });
    node.addEventListener("click", (event) => event.target === node && node.close());
    document.body.append(node);
    node.showModal();
  });
}

export function toast(text, kind = "", link = null) {
  const node = el("div", { class: `toast ${kind}` }, text, link ? [" ", el("a", { href: link.href }, link.text)] : null);
  document.getElementById("toasts").append(node);
  setTimeout(() => node.remove(), kind === "is-error" ? 8000 : 4000);
}
