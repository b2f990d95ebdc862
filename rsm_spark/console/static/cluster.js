// What all views show: the cluster as the console saw it last, read once for all of them.

import { EventStream } from "./events.js";

export class ClusterEvents extends EventStream {
  placeName = "since";
}

let reading = null;

/** Read the view of the cluster; who asks while it is read gets the same. */
export function readView(app) {
  reading ??= app.ask(["view"]).finally(() => {
    reading = null;
  });
  return reading;
}

/** Who asks, and what it may see and do; read once for each token. */
export async function whoAsks(app) {
  app.me ??= await app.ask(["me"]);
  return app.me;
}

/** The address of a view of the page; a log's name may hold anything. */
export function address(view) {
  return `#/${view.split("/").map(encodeURIComponent).join("/")}`;
}

/** "10.0.0.1:3181" -> "10.0.0.1"; what has no port is a host already. */
export function hostOf(place) {
  return /^(.*):\d+$/.exec(place)?.[1] ?? place;
}

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  let left = value;
  while (left >= 1024 && unit < units.length - 1) {
    left /= 1024;
    unit += 1;
  }
  return `${unit && left < 10 ? left.toFixed(1) : Math.round(left)} ${units[unit]}`;
}

/** Read for a view; what went wrong is said in its place, and what was seen before stays. */
export async function refresh(app, draw, fail) {
  try {
    draw(await readView(app));
  } catch (error) {
    fail(error.status === 403 ? "It is for operators, auditors, and clients that may read logs." : error.message);
  }
}
