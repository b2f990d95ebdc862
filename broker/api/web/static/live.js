// What happens at the broker, as it happens, and how much of it a second.

import { EventStream } from "./events.js";

const RATE_SECONDS = 60;
const COUNTED = { task_submitted: "submitted", task_ended: "ended" };

export class BrokerEvents extends EventStream {
  #counts = { submitted: new Array(RATE_SECONDS).fill(0), ended: new Array(RATE_SECONDS).fill(0) };
  #second = Math.floor(Date.now() / 1000);
  #since = 0;

  /** Events a second of the last minute, oldest first, as far as it was listened to; not the second that runs. */
  rates() {
    this.#advance();
    const known = Math.min(RATE_SECONDS - 1, this.#since ? this.#second - this.#since : 0);
    const last = (counts) => counts.slice(RATE_SECONDS - 1 - known, -1);
    return { submitted: last(this.#counts.submitted), ended: last(this.#counts.ended), seconds: RATE_SECONDS - 1 };
  }

  began() {
    this.#since ||= Math.floor(Date.now() / 1000);
  }

  took(name) {
    const which = COUNTED[name];
    if (!which) return;
    this.#advance();
    this.#counts[which][RATE_SECONDS - 1] += 1;
  }

  #advance() {
    const now = Math.floor(Date.now() / 1000);
    for (let passed = Math.min(now - this.#second, RATE_SECONDS); passed > 0; passed -= 1) {
      for (const counts of Object.values(this.#counts)) {
        counts.shift();
        counts.push(0);
      }
    }
    this.#second = now;
  }
}
