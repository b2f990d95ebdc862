// Lines over a day: what the server remembers, a value a minute. Where it could not look there is a gap.

import { el, setText, svg } from "./dom.js";
import { short } from "./format.js";

const DAY_MS = 86400000;
const STEP_MS = 60000;
const WIDTH = 960;
const HEIGHT = 100;
const HOUR = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });

/** A chart of lines: `series`: [{name, key}], drawn by `set(history, now)` with columns by key. */
export function timeline(title, series, heading = "h2") {
  const lines = series.map((one, place) => svg("path", { class: `spark-line line-${place}` }));
  const top = el("span", { class: "spark-top num" });
  const chart = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": title }, lines);
  const hours = el("div", { class: "hours num", "aria-hidden": "true" });
  const values = series.map(() => el("span", { class: "num" }, "–"));
  const legend = el("p", { class: "legend" }, series.map((one, place) => el("span", { class: `key key-${place}` }, `${one.name} `, values[place])));
  const node = el("section", { class: "card timeline" },
    el("div", { class: "card-head" }, el(heading, {}, title), legend),
    el("div", { class: "spark" }, chart, top), hours);

  node.set = (history, now = Date.now()) => {
    const columns = series.map((one) => history[one.key] ?? []);
    const known = columns.flatMap((column) => column.filter((value) => value >= 0));
    const high = known.reduce((most, value) => Math.max(most, value), 1);
    const begin = now - DAY_MS;
    columns.forEach((column, place) => lines[place].setAttribute("d", path(history, column, begin, high)));
    setText(top, short(high));
    columns.forEach((column, place) => setText(values[place], column.length && column.at(-1) >= 0 ? short(column.at(-1)) : "–"));
    const said = series.map((one, place) => {
      const seen = columns[place].filter((value) => value >= 0);
      const most = seen.reduce((highest, value) => Math.max(highest, value), 0);
      return seen.length ? `${one.name}: now ${short(seen.at(-1))}, at most ${short(most)}` : `${one.name}: not known`;
    });
    chart.setAttribute("aria-label", `${title}, over the last day. ${said.join(". ")}.`);
    drawHours(begin);
  };

  function drawHours(begin) {
    const marks = [0, 1, 2, 3, 4].map((part) => HOUR.format(new Date(begin + (part * DAY_MS) / 4)));
    if (hours.children.length !== marks.length) hours.replaceChildren(...marks.map(() => el("span")));
    marks.forEach((mark, place) => setText(hours.children[place], mark));
  }
  return node;
}

function path(history, column, begin, high) {
  let drawn = "";
  let last = 0;
  column.forEach((value, place) => {
    const at = history.at_ms[place];
    if (value < 0 || history.unseen?.[place] || at < begin) {
      last = 0;
      return;
    }
    const x = (((at - begin) / DAY_MS) * WIDTH).toFixed(1);
    const y = (HEIGHT - 2 - (value / high) * (HEIGHT - 8)).toFixed(1);
    const joins = last && at - last <= 3 * STEP_MS;
    drawn += joins ? `L${x} ${y}` : `M${x} ${y}h0.8`;
    last = at;
  });
  return drawn;
}

/** How much a second a rising column grew, minute by minute; -1 where that is not known. */
export function perSecond(history, column) {
  return column.map((value, place) => {
    const before = place ? column[place - 1] : -1;
    const passed = place ? (history.at_ms[place] - history.at_ms[place - 1]) / 1000 : 0;
    return value < 0 || before < 0 || passed <= 0 || value < before ? -1 : (value - before) / passed;
  });
}
