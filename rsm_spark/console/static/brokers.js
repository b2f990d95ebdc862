// Tasks of all brokers: how many wait, and whether anybody runs them; and behind each its tasks one by one.

import { address, refresh, whoAsks } from "./cluster.js";
import { el, reconcile, setText } from "./dom.js";
import { ago, count, short } from "./format.js";
import { taskList } from "./tasks.js";
import { timeline } from "./timeline.js";
import { Rows, pill, setPill, textCell } from "./widgets.js";

const TILES = [["waiting", "Waiting"], ["running", "Running"], ["delayed", "Delayed"], ["error", "Dead letters"], ["finished", "Finished"]];

export function brokersView(app) {
  const chart = timeline("Tasks that wait, of all brokers", [{ name: "waiting", key: "waiting" }]);
  const cards = el("div", { class: "view" });
  const failure = el("p", { class: "banner is-error", role: "alert", hidden: true });
  const none = el("p", { class: "quiet", hidden: true }, "No broker runs: rsm broker run starts one.");
  const all = el("div", { class: "view" }, failure, none, cards, chart);
  const single = el("div", { class: "view", hidden: true });
  let list = null; // of one broker's tasks
  let listed = "";

  function make(one) {
    const title = el("h2", { id: `broker-${one.log}` }, one.log);
    const node = el("section", { class: "card broker", "aria-labelledby": `broker-${one.log}` });
    node.tasks = el("a", { href: address(`tasks/${one.log}`) }, "Its tasks, one by one");
    node.link = el("a", { rel: "noreferrer" }, "Its dashboard: tenants, workers, limits");
    node.problem = el("p", { class: "banner is-error", hidden: true });
    node.values = Object.fromEntries(TILES.map(([name]) => [name, el("span", { class: "tile-value num" }, "–")]));
    node.workers = el("p", { class: "num" });
    node.rows = new Rows({
      label: `Task types of ${one.log}`,
      key: (type) => type.type,
      empty: { title: "No tasks", text: "rsm task submit sends one." },
      columns: [
        { title: "Type", class: "name", render: textCell((type) => type.type) },
        { title: "Served", class: "state", render: servedCell },
        { title: "Waiting", class: "num", render: textCell((type) => count(type.waiting)) },
        { title: "Running", class: "num", render: textCell((type) => count(type.running)) },
        { title: "Dead letters", class: "num", render: textCell((type) => count(type.error)) },
      ],
    });
    node.append(
      el("div", { class: "card-head" }, title, node.tasks, node.link), node.problem,
      el("div", { class: "tiles" }, TILES.map(([name, said]) => el("a", { class: `tile tile-${name}`, href: `${address(`tasks/${one.log}`)}?q=status:${name}` }, el("span", { class: "tile-title" }, said), node.values[name]))),
      node.workers, node.rows.node);
    return node;
  }

  function update(node, one) {
    node.item = one;
    node.problem.hidden = !one.problem;
    setText(node.problem, one.problem);
    node.link.hidden = !/^https?:\/\//.test(one.url);
    if (!node.link.hidden) node.link.href = `${one.url}/#/tasks`;
    for (const [name] of TILES) setText(node.values[name], one.problem ? "–" : short(one[name]));
    if (one.problem) node.rows.fail(one.problem);
    else node.rows.set([...one.types].sort((type, other) => type.is_served - other.is_served || other.waiting - type.waiting));
    fillWorkers(node);
  }

  function fillWorkers(node) {
    const one = node.item;
    const oldest = one.oldest_waiting_ms ? `; the oldest task waits for ${ago(one.oldest_waiting_ms)}` : "";
    setText(node.workers, one.problem ? "" : `${count(one.workers)} workers are connected, with ${count(one.threads)} threads${oldest}.`);
  }

  function draw(view) {
    failure.hidden = true;
    none.hidden = view.tasks.length > 0;
    reconcile(cards, view.tasks, (one) => one.log, make, update);
  }

  function fail(text) {
    failure.hidden = false;
    setText(failure, `The tasks could not be read: ${text}`);
  }

  /** What whoever has no right to the whole cluster sees: the brokers, and in each the tasks that are its own. */
  async function readNames() {
    try {
      const { logs } = await app.ask(["brokers"]);
      failure.hidden = true;
      chart.hidden = true;
      none.hidden = logs.length > 0;
      cards.replaceChildren(...logs.map((log) => el("section", { class: "card broker", "aria-label": log }, el("div", { class: "card-head" }, el("h2", {}, log), el("a", { href: address(`tasks/${log}`) }, "Its tasks, one by one")), el("p", { class: "quiet" }, app.me.tenant ? `You see the tasks of tenant ${app.me.tenant}.` : "You see tasks."))));
    } catch (error) {
      fail(error.message);
    }
  }

  async function readAll(names) {
    const me = await whoAsks(app).catch(() => null);
    if (me && !me.sees_cluster) return readNames();
    return Promise.all([refresh(app, draw, fail), names.has("*") || names.has("history") ? readHistory() : undefined]);
  }

  function show(rest, query) {
    const log = rest[0] ?? "";
    all.hidden = log !== "";
    single.hidden = log === "";
    if (log !== listed) {
      listed = log;
      list = log ? taskList(app, { base: ["brokers", log], root: address(`tasks/${log}`), isMine: (name) => name === "tasks", mayChange: Boolean(app.me?.may_change_tasks), mayReorder: false }) : null;
      single.replaceChildren(...(list ? [el("p", {}, el("a", { href: "#/tasks" }, "All brokers"), ` / ${log}`), list.node] : []));
      if (list) list.read(new Set(["*"]));
      else readAll(new Set(["*"]));
    }
    list?.show(rest.slice(1), query);
  }

  async function readHistory() {
    try {
      chart.set(await app.ask(["history"]));
    } catch {
      // The view says why.
    }
  }

  return {
    node: el("div", { class: "view" }, all, single),
    show,
    read: (names) => (list ? list.read(names) : readAll(names)),
    tick: () => (list ? list.tick() : [...cards.children].forEach((node) => node.item && fillWorkers(node))),
    search: () => list?.search(),
    close: () => list?.close(),
    keyPressed: (event) => {
      if (list) return list.keyPressed(event);
      const own = [...cards.children].find((node) => node.contains(document.activeElement)) ?? cards.firstElementChild;
      return own?.rows?.keyPressed(event) ?? false;
    },
  };
}

function servedCell(cell, type) {
  if (!cell.firstChild) cell.append(pill(""));
  const kind = type.is_served ? "connected" : type.waiting ? "error" : "waiting";
  setPill(cell.firstChild, kind);
  setText(cell.firstChild, type.is_served ? "by workers" : "by nobody");
}
