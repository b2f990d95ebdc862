// Numbers and times as people read them; widths that change little, so that columns stand still.

const WHOLE = new Intl.NumberFormat("en");
const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const CLOCK = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const DASH = "–";

export function count(value) {
  return WHOLE.format(value ?? 0);
}

/** Up to six digits whole, beyond that short. */
export function short(value) {
  return Math.abs(value ?? 0) < 1e6 ? count(value) : SHORT.format(value);
}

export function rate(value) {
  if (value === 0) return "0";
  return value < 10 ? value.toFixed(1) : short(Math.round(value));
}

export function percent(value) {
  const shown = (value ?? 0) * 100;
  return shown > 0 && shown < 1 ? "<1 %" : `${Math.round(shown)} %`;
}

/** A time span in ms; below 0: none. */
export function span(ms) {
  if (ms === undefined || ms === null || ms < 0) return DASH;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const s = ms / 1000;
  if (s < 60) return `${s < 10 ? s.toFixed(1) : Math.round(s)} s`;
  if (s < 600) return s % 60 < 1 ? `${Math.floor(s / 60)} min` : `${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

/** How long ago, or in how long. */
export function ago(ms, now = Date.now()) {
  if (!ms) return DASH;
  const passed = now - ms;
  if (passed < -1000) return `in ${span(-passed)}`;
  if (passed < 1000) return "now";
  if (passed < 60000) return `${Math.floor(passed / 1000)} s`;
  return passed < 3600000 ? `${Math.floor(passed / 60000)} min` : span(passed);
}

export function clock(ms) {
  return ms ? CLOCK.format(new Date(ms)) : DASH;
}

export function orDash(text) {
  return text === "" || text === undefined || text === null ? DASH : String(text);
}

/** JSON is shown indented; anything else as it is. Too much of it is cut, and says so. */
export function content(text, most = 20000) {
  let shown = text;
  const first = text.trimStart()[0];
  if (text.length <= most && (first === "{" || first === "[")) {
    try {
      shown = JSON.stringify(JSON.parse(text), null, 2);
    } catch {
      // Not JSON after all.
    }
  }
  return shown.length > most ? `${shown.slice(0, most)}\n… ${count(shown.length - most)} more characters` : shown;
}
