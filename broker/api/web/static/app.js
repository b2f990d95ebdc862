// The broker's page.

import { setText } from "./dom.js";
import { limitsView } from "./limits.js";
import { BrokerEvents } from "./live.js";
import { overviewView } from "./overview.js";
import { startPage } from "./shell.js";
import { tasksView } from "./tasks.js";
import { tenantsView } from "./tenants.js";
import { workersView } from "./workers.js";

async function readStatus(app, node) {
  const status = await app.ask(["status"]);
  node.className = `chip is-${/^[a-z]+$/.test(status.role) ? status.role : "other"}`;
  setText(node, status.role);
  node.title = `${status.replica_id}: ${status.role}, revision ${status.revision}, epoch ${status.leader_epoch}`;
  return status;
}

startPage({
  name: "Broker",
  views: [
    ["overview", "Overview", overviewView],
    ["tenants", "Tenants", tenantsView],
    ["tasks", "Tasks", tasksView],
    ["workers", "Workers", workersView],
    ["limits", "Limits", limitsView],
  ],
  Stream: BrokerEvents,
  readStatus,
  keys: [
    ["n p", "Next and previous page"],
    ["e", "Change the weight of a tenant"],
  ],
  searchIn: "tasks",
});
