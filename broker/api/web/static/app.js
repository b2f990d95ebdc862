// The broker's page.

import { setText } from "./dom.js";
import { limitsView } from "./limits.js";
import { BrokerEvents } from "./live.js";
import { overviewView } from "./overview.js";
import { startPage } from "./shell.js";
import { taskList } from "./tasks.js";
import { tenantsView } from "./tenants.js";
import { workersView } from "./workers.js";

async function readStatus(app, node) {
  const status = await app.ask(["status"]);
  node.className = `chip is-${/^[a-z]+$/.test(status.role) ? status.role : "other"}`;
  setText(node, status.role);
  node.title = `${status.replica_id}: ${status.role}, revision ${status.revision}, epoch ${status.leader_epoch}`;
  return status;
}

const ABOUT_TASKS = /^(task_|progress_|state_|transaction_)/;
const TASKS = { base: [], root: "#/tasks", isMine: (name) => ABOUT_TASKS.test(name), mayChange: true, mayReorder: true };

startPage({
  name: "Broker",
  views: [
    ["overview", "Overview", overviewView],
    ["tenants", "Tenants", tenantsView],
    ["tasks", "Tasks", (app) => taskList(app, TASKS)],
    ["workers", "Workers", workersView],
    ["limits", "Limits", limitsView],
  ],
  Stream: BrokerEvents,
  readStatus,
  keys: [
    ["n p", "Next and previous page"],
    ["x", "Choose a dead letter"],
    ["e", "Change the weight of a tenant"],
  ],
  searchIn: "tasks",
});
