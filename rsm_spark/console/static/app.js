// The cluster's console.

import { bookiesView } from "./bookies.js";
import { brokersView } from "./brokers.js";
import { browseView } from "./browse.js";
import { ClusterEvents, readView, whoAsks } from "./cluster.js";
import { copiesView } from "./copies.js";
import { setText } from "./dom.js";
import { findingsView } from "./findings.js";
import { followersView } from "./followers.js";
import { clock } from "./format.js";
import { logsView } from "./logs.js";
import { overviewView } from "./overview.js";
import { startPage } from "./shell.js";
import { showWarnings, tickWarnings } from "./warnings.js";

const VIEWS = [
  ["overview", "Overview", overviewView],
  ["bookies", "Bookies", bookiesView],
  ["copies", "Copies", copiesView],
  ["logs", "Logs", logsView],
  ["tasks", "Tasks", brokersView],
  ["followers", "Followers", followersView],
  ["browse", "Data", browseView],
  ["findings", "Findings", findingsView],
];
const OF_LOGS = ["logs", "followers", "browse", "findings"];

async function readStatus(app, node) {
  const me = await whoAsks(app);
  if (!me.sees_cluster) {
    node.className = "chip";
    setText(node, me.tenant ? `tenant ${me.tenant}` : me.role);
    node.title = `${me.name}, ${me.role}`;
    showWarnings(me.sees_logs ? await readView(app) : { warnings: [] });
    return me;
  }
  const view = await readView(app);
  showWarnings(view);
  const bad = view.warnings.filter((one) => one.grade === "bad").length;
  node.className = `chip is-${bad ? "bad" : view.warnings.length ? "note" : "good"}`;
  const notes = view.warnings.length - bad;
  setText(node, bad ? `${bad} bad` : notes ? `${notes} ${notes > 1 ? "notes" : "note"}` : "all is well");
  node.title = `Looked at ${clock(view.at_ms)}`;
  return view;
}

/** The views that the caller may see: whoever has no right to the whole cluster sees its logs, or its tasks. */
async function viewsOf(app) {
  app.me = undefined;
  const me = await whoAsks(app);
  if (me.sees_cluster) return VIEWS.map(([name]) => name);
  return [...(me.sees_logs ? OF_LOGS : []), ...(me.sees_tasks ? ["tasks"] : [])];
}

startPage({
  name: "Console",
  views: VIEWS,
  Stream: ClusterEvents,
  readStatus,
  searchIn: "logs",
  viewsOf,
  keys: [["x", "Choose a dead letter"]],
});
setInterval(() => document.hidden || tickWarnings(), 1000);
