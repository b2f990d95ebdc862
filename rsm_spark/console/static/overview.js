// Whether the cluster is well, at a glance, and how it was over the last day.

import { hostOf, refresh } from "./cluster.js";
import { el, setText } from "./dom.js";
import { count, short, span } from "./format.js";
import { timeline } from "./timeline.js";
import { Rows, textCell } from "./widgets.js";

const TILES = [
  ["warnings", "Warnings", "#/findings"],
  ["bookies", "Bookies that serve", "#/bookies"],
  ["copies", "Ledgers that lack copies", "#/copies"],
  ["logs", "Logs with a leader", "#/logs"],
  ["tasks", "Tasks that wait", "#/tasks"],
  ["followers", "Followers", "#/followers"],
  ["zookeeper", "ZooKeeper answers in", "#/findings"],
];

export function overviewView(app) {
  const values = Object.fromEntries(TILES.map(([name]) => [name, el("span", { class: "tile-value num" }, "–")]));
  const links = Object.fromEntries(TILES.map(([name, title, href]) =>
    [name, el("a", { class: "tile", href }, el("span", { class: "tile-title" }, title), values[name])]));
  const failure = el("p", { class: "banner is-error", role: "alert", hidden: true });
  const charts = {
    bookies: timeline("Bookies", [{ name: "serve", key: "bookies" }, { name: "missing", key: "missing" }]),
    copies: timeline("Copies that are missing", [{ name: "ledgers", key: "lacking" }, { name: "entries", key: "lacking_entries" }]),
    warnings: timeline("Warnings", [{ name: "warnings", key: "warnings" }]),
  };
  const machines = new Rows({
    label: "Machines",
    key: (one) => one.host,
    empty: { title: "No machines", text: "rsm bookie run starts the first process." },
    columns: [
      { title: "Machine", class: "name", render: textCell((one) => one.host) },
      { title: "Bookies", class: "said", render: textCell((one) => one.bookies.join(", ") || "–") },
      { title: "Leads", class: "said", render: textCell((one) => one.leads.join(", ") || "–") },
      { title: "Follows", class: "said", render: textCell((one) => one.follows.join(", ") || "–") },
    ],
  });
  machines.table.classList.add("is-text");
  const node = el("div", { class: "view" },
    failure,
    el("div", { class: "tiles" }, Object.values(links)),
    el("div", { class: "charts" }, Object.values(charts)),
    el("section", { "aria-labelledby": "machines-title" }, el("h2", { id: "machines-title" }, "Machines"), machines.node));

  function tile(name, text, isBad, isNote = false) {
    setText(values[name], text);
    links[name].className = `tile ${isBad ? "tile-error" : isNote ? "tile-delayed" : "tile-finished"}`;
  }

  function draw(view) {
    failure.hidden = true;
    const missing = view.bookies.filter((one) => one.state === "missing").length;
    const served = view.logs.filter((one) => !one.is_plain && !one.forgotten_by);
    const led = served.filter((one) => one.leader).length;
    const followers = view.logs.flatMap((one) => one.consumers);
    const bad = view.warnings.some((one) => one.grade === "bad");
    tile("warnings", count(view.warnings.length), bad, view.warnings.length > 0);
    tile("bookies", `${count(view.bookies.length - missing)} of ${count(view.bookies.length)}`, missing > 0);
    tile("copies", count(view.copies?.lacking_count), view.copies ? !view.copies.is_whole : false);
    tile("logs", `${count(led)} of ${count(served.length)}`, led < served.length);
    const unserved = view.tasks.some((one) => one.types.some((type) => type.waiting && !type.is_served));
    tile("tasks", short(view.tasks.reduce((sum, one) => sum + one.waiting, 0)), unserved, view.tasks.some((one) => one.problem));
    tile("followers", count(followers.length), followers.some((one) => one.lost || one.problem));
    tile("zookeeper", span(view.zookeeper_ms), Boolean(view.problem), view.zookeeper_ms > 200);
    machines.set(machinesOf(view));
  }

  function fail(text) {
    failure.hidden = false;
    setText(failure, `The cluster could not be read: ${text}`);
    machines.fail(text);
  }

  async function readHistory() {
    try {
      const history = await app.ask(["history"]);
      for (const chart of Object.values(charts)) chart.set(history);
    } catch {
      // The view says why.
    }
  }

  return {
    node,
    show() {},
    read: (names) => Promise.all([refresh(app, draw, fail), names.has("*") || names.has("history") ? readHistory() : undefined]),
    keyPressed: (event) => machines.keyPressed(event),
  };
}

function machinesOf(view) {
  const found = new Map();
  const at = (place) => {
    const host = hostOf(place);
    if (!found.has(host)) found.set(host, { host, bookies: [], leads: [], follows: [] });
    return found.get(host);
  };
  for (const one of view.bookies) at(one.bookie_id).bookies.push(one.state === "writable" ? one.bookie_id : `${one.bookie_id} (${one.state})`);
  for (const log of view.logs) {
    for (const one of log.replicas) {
      if (one.address) at(one.address)[one.role === "leader" ? "leads" : "follows"].push(`${log.log} (${one.replica_id})`);
    }
  }
  return [...found.values()].sort((one, other) => one.host.localeCompare(other.host));
}
