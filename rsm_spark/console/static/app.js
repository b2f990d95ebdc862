// The cluster's console.

import { bookiesView } from "./bookies.js";
import { brokersView } from "./brokers.js";
import { browseView } from "./browse.js";
import { ClusterEvents, readView } from "./cluster.js";
import { copiesView } from "./copies.js";
import { setText } from "./dom.js";
import { findingsView } from "./findings.js";
import { followersView } from "./followers.js";
import { clock } from "./format.js";
import { logsView } from "./logs.js";
import { overviewView } from "./overview.js";
import { startPage } from "./shell.js";
import { showWarnings, tickWarnings } from "./warnings.js";

async function readStatus(app, node) {
  const view = await readView(app);
  showWarnings(view);
  const bad = view.warnings.filter((one) => one.grade === "bad").length;
  node.className = `chip is-${bad ? "bad" : view.warnings.length ? "note" : "good"}`;
  const notes = view.warnings.length - bad;
  setText(node, bad ? `${bad} bad` : notes ? `${notes} ${notes > 1 ? "notes" : "note"}` : "all is well");
  node.title = `Looked at ${clock(view.at_ms)}`;
  return view;
}

startPage({
  name: "Console",
  views: [
    ["overview", "Overview", overviewView],
    ["bookies", "Bookies", bookiesView],
    ["copies", "Copies", copiesView],
    ["logs", "Logs", logsView],
    ["tasks", "Tasks", brokersView],
    ["followers", "Followers", followersView],
    ["browse", "Data", browseView],
    ["findings", "Findings", findingsView],
  ],
  Stream: ClusterEvents,
  readStatus,
  searchIn: "logs",
});
setInterval(() => document.hidden || tickWarnings(), 1000);
