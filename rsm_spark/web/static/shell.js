// The frame of a page: views by the part of the address behind "#", the live stream, the keyboard, token and theme.

import { Refused, ask, setToken, token } from "./api.js";
import { el, icon, setText } from "./dom.js";
import { button, dialog, toast } from "./widgets.js";

const STATES = { live: "live", connecting: "connecting", reconnecting: "reconnecting", "no-token": "no access" };
const THEMES = {
  "": ["Theme: as the system", "M10 3a7 7 0 1 0 0 14zM10 3a7 7 0 0 1 0 14z"],
  light: ["Theme: light", "M10 6.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7zM10 1.5v2M10 16.5v2M1.5 10h2M16.5 10h2M4 4l1.4 1.4M14.6 14.6 16 16M4 16l1.4-1.4M14.6 5.4 16 4"],
  dark: ["Theme: dark", "M16.5 11.5A7 7 0 1 1 8.5 3.5a5.6 5.6 0 0 0 8 8z"],
};

const KEYS = [
  ["j k  ↓ ↑", "Down and up in a list"],
  ["Enter", "Open"],
  ["Esc", "Close, or leave the search"],
];
const LAST_KEYS = [
  ["t", "Theme"],
  ["?", "This list"],
];

/** Begin a page.
 *
 * `name`: what it is, for the window's title. `views`: [name, title, make], make(app) returns {node, show, read} and,
 * where there is something to do, tick, status, search, close, keyPressed, dispose. `Stream`: made with a function that
 * is told its state; has subscribe, start. `readStatus(app)`: reads what the bar shows, and returns it for the views.
 * `keys`: [keys, what they do], beside those of every page. `searchIn`: the view that "/" goes to, if another has none.
 * `viewsOf(app)`: the names of the views that the caller may see, as it is now; without it, and if it fails, all.
 */
export function startPage({ name: pageName, views, Stream, readStatus, keys = [], searchIn, viewsOf }) {
  const content = document.getElementById("content");
  const nav = document.getElementById("nav");
  let view = null;
  let viewName = "";
  let asksForToken = false;
  let visible = null;

  const live = new Stream((state) => {
    const node = document.getElementById("live");
    node.className = `live is-${state}`;
    setText(document.getElementById("live-text"), STATES[state]);
    if (state === "no-token") askToken();
  });

  /** What views share: reading with one way to deal with a missing token, the live stream, where to go. */
  const app = {
    live,
    async ask(parts, options) {
      const shown = token();
      try {
        return await ask(parts, options);
      } catch (error) {
        if (!(error instanceof Refused && error.status === 401)) throw error;
        // The answer to the token of before: whoever has entered one since is not asked again.
        if (token() === shown) askToken();
        else if (!options?.method) return app.ask(parts, options);
        throw error;
      }
    },
    /** Say what was refused; where the leader would not have refused, with the way to it. */
    fail(error) {
      const leader = error.reason === "not-leader" ? app.status?.leader_http : "";
      toast(error.message, "is-error", /^https?:\/\//.test(leader ?? "") ? { href: `${leader}/${location.hash}`, text: "Open it" } : null);
    },
    go: (hash) => {
      location.hash = hash;
    },
  };

  // ---- views

  function parse() {
    const [whole, search = ""] = location.hash.replace(/^#\/?/, "").split("?");
    const [name, ...rest] = whole.split("/");
    const open = views.filter(([one]) => !visible || visible.has(one));
    const known = open.some(([one]) => one === name) ? name : (open[0] ?? views[0])[0];
    return { name: known, rest: rest.map(decoded), query: Object.fromEntries(new URLSearchParams(search)) };
  }

  function route() {
    const { name, rest, query } = parse();
    for (const link of nav.children) {
      if (link.dataset.name === name) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    if (name !== viewName) {
      view?.dispose?.();
      const [, title, make] = views.find(([known]) => known === name);
      viewName = name;
      view = make(app);
      content.replaceChildren(el("h1", { class: "sr-only" }, title), view.node);
      document.title = `${title} – ${pageName}`;
      view.show(rest, query);
      read(new Set(["*"]));
    } else {
      view.show(rest, query);
    }
  }

  async function read(names) {
    await Promise.allSettled([view?.read(names), readBar(names)]);
  }

  async function readBar(names) {
    const node = document.getElementById("role");
    try {
      app.status = await readStatus(app, node, names);
      node.hidden = false;
      view?.status?.(app.status);
    } catch {
      node.hidden = true;
    }
  }

  async function begin() {
    if (viewsOf) {
      visible = await viewsOf(app).then((names) => new Set(names), () => null);
      for (const link of nav.children) link.hidden = Boolean(visible) && !visible.has(link.dataset.name);
    }
    viewName = "";
    route();
    live.start();
  }

  for (const [name, title] of views) {
    nav.append(el("a", { href: `#/${name}`, "data-name": name }, title));
  }
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault(); // what is behind "#" is the view
    content.focus();
  });
  live.subscribe(read);
  window.addEventListener("hashchange", route);

  // ---- token

  async function askToken() {
    if (asksForToken) return;
    asksForToken = true;
    const entered = await dialog("Token", (close) => {
      const field = el("input", { type: "password", id: "token-field", autocomplete: "off", spellcheck: "false", value: token() });
      const form = el("form", { method: "dialog", onsubmit: (event) => { event.preventDefault(); close(field.value.trim()); } },
        el("label", { for: "token-field" }, "Who you are is told by a token. It is kept in this tab until it is closed."),
        field,
        el("div", { class: "dialog-end" }, button("Forget it", () => close("")), el("button", { class: "button is-main", type: "submit" }, "Use it")));
      return [form];
    }, null);
    asksForToken = false;
    if (entered === null) return;
    setToken(entered);
    await begin();
  }

  document.getElementById("token").addEventListener("click", askToken);

  // ---- theme

  function applyTheme(theme) {
    const [label, path] = THEMES[theme];
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    const node = document.getElementById("theme");
    node.replaceChildren(icon(path));
    node.setAttribute("aria-label", label);
    node.title = `${label} (t)`;
  }

  function nextTheme() {
    const names = Object.keys(THEMES);
    const next = names[(names.indexOf(document.documentElement.dataset.theme ?? "") + 1) % names.length];
    try {
      if (next) localStorage.setItem("rsm-theme", next);
      else localStorage.removeItem("rsm-theme");
    } catch {
      // It is kept for this page, then.
    }
    applyTheme(next);
  }

  document.getElementById("theme").addEventListener("click", nextTheme);
  applyTheme(document.documentElement.dataset.theme ?? "");

  // ---- keyboard

  const shortcuts = [
    [`1 – ${views.length}`, views.map(([, title], place) => (place ? title.toLowerCase() : title)).join(", ")],
    ["/", "Search"],
    ...KEYS,
    ...keys,
    ...LAST_KEYS,
  ];

  function showShortcuts() {
    dialog("Keyboard", (close) => [
      el("dl", { class: "keys" }, shortcuts.map(([pressed, what]) => [el("dt", {}, pressed.split(/\s+/).map((key) => (key === "–" ? " – " : el("kbd", {}, key)))), el("dd", {}, what)])),
      el("div", { class: "dialog-end" }, button("Close", () => close(null), { kind: "is-main" })),
    ], null);
  }

  document.getElementById("help").addEventListener("click", showShortcuts);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const typing = event.target.closest?.("input, select, textarea");
    if (event.key === "Escape") {
      if (typing) event.target.blur();
      else view?.close?.();
      return;
    }
    if (typing) return;
    if (pressed(event)) event.preventDefault();
  });

  function pressed(event) {
    const digit = Number(event.key);
    if (digit >= 1 && digit <= views.length) app.go(`#/${views[digit - 1][0]}`);
    else if (event.key === "/") (view.search ?? goSearch)();
    else if (event.key === "?") showShortcuts();
    else if (event.key === "t") nextTheme();
    else return view.keyPressed?.(event) ?? false;
    return true;
  }

  function goSearch() {
    if (!searchIn) return;
    app.go(`#/${searchIn}`);
    requestAnimationFrame(() => view.search?.());
  }

  // Ages grow while nothing happens.
  setInterval(() => document.hidden || view?.tick?.(), 1000);
  begin();
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
