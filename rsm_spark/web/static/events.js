// What happens at the server, as it happens: one stream of server-sent events for the whole page.
//
// It is read by `fetch`, as an EventSource cannot carry a token other than in its URL. Events are only counted and
// looked at by name; what they changed is read again, once for all that came together, and not while nobody looks.

import { headers, path } from "./api.js";

const SILENCE_MS = 45000;
const BACKOFF_MS = [500, 10000];
const GAP_MS = 400;

export class EventStream {
  /** Parameter that says from where on events are wanted: the id of the last one, and one more. */
  placeName = "from_revision";
  #next = 0;
  #listeners = new Set();
  #backoff = BACKOFF_MS[0];
  #abort = null;
  #dirty = new Set();
  #timer = 0;
  #cut = null; // ends the connection that is open
  #hurry = null; // ends the pause before the next one

  constructor(onState) {
    this.onState = onState;
    document.addEventListener("visibilitychange", () => document.hidden || this.#schedule(0));
    window.addEventListener("offline", () => this.#cut?.());
    window.addEventListener("online", () => this.#hurry?.());
  }

  /** Call `read(names)` when events came: a set of their names, or one with "*" if any may have been missed. */
  subscribe(read) {
    this.#listeners.add(read);
    return () => this.#listeners.delete(read);
  }

  /** Begin, or begin anew with another token. */
  start() {
    this.#abort?.abort();
    const abort = new AbortController();
    this.#abort = abort;
    this.#run(abort.signal);
  }

  stop() {
    this.#abort?.abort();
    this.#abort = null;
  }

  /** Called by the name of each event that comes. */
  took() {}

  /** Called when events begin to come. */
  began() {}

  async #run(signal) {
    while (!signal.aborted) {
      try {
        await this.#read(signal);
        this.onState("reconnecting");
      } catch (error) {
        if (signal.aborted) return;
        if (error.status === 401 || error.status === 403) {
          this.onState("no-token");
          return;
        }
        if (error.status === 410) this.#next = 0;
        this.onState("reconnecting");
      }
      await new Promise((resolve) => {
        this.#hurry = resolve;
        setTimeout(resolve, this.#backoff * (0.75 + Math.random() / 2));
      });
      this.#backoff = Math.min(this.#backoff * 2, BACKOFF_MS[1]);
    }
  }

  async #read(signal) {
    const connection = new AbortController();
    const end = () => connection.abort();
    signal.addEventListener("abort", end);
    this.#cut = end;
    let watchdog = setTimeout(end, SILENCE_MS);
    try {
      const query = this.#next ? { [this.placeName]: this.#next } : {};
      const response = await fetch(path(["events"], query), {
        headers: headers({ Accept: "text/event-stream" }), signal: connection.signal, cache: "no-store",
      });
      if (!response.ok) throw Object.assign(new Error("events"), { status: response.status });
      this.onState("live");
      this.#backoff = BACKOFF_MS[0];
      this.began();
      if (!this.#next) this.#mark("*");
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        clearTimeout(watchdog);
        watchdog = setTimeout(end, SILENCE_MS);
        const blocks = (rest + value).split("\n\n");
        rest = blocks.pop();
        for (const block of blocks) this.#take(block);
      }
    } finally {
      clearTimeout(watchdog);
      signal.removeEventListener("abort", end);
      connection.abort();
    }
  }

  #take(block) {
    const name = /^event: ?(.*)$/m.exec(block)?.[1];
    if (!name) return;
    const id = /^id: ?(\d+)$/m.exec(block)?.[1];
    if (id) this.#next = Number(id) + 1;
    if (name === "trimmed") {
      this.#next = 0;
      this.#mark("*");
      return;
    }
    this.took(name);
    this.#mark(name);
  }

  #mark(name) {
    this.#dirty.add(name);
    this.#schedule(GAP_MS);
  }

  #schedule(gap) {
    if (this.#timer || document.hidden || !this.#dirty.size) return;
    this.#timer = setTimeout(() => this.#tell(), gap);
  }

  async #tell() {
    const names = this.#dirty;
    this.#dirty = new Set();
    const began = performance.now();
    await Promise.allSettled([...this.#listeners].map((read) => read(names)));
    // A slow server, or very many things on it, are read less often: at most a fifth of the time is spent on it.
    const pause = Math.max(GAP_MS, (performance.now() - began) * 4);
    this.#timer = setTimeout(() => {
      this.#timer = 0;
      this.#schedule(0);
    }, pause);
  }
}
