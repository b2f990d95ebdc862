// Requests to the server that served this page. The token lives in this tab's session and nowhere else.

const KEY = "rsm-token";

export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail || problem.title || `the server answered ${status}`);
    this.status = status;
    this.reason = problem.reason ?? "";
  }
}

export class Unreachable extends Error {}

export function token() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

export function setToken(value) {
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}

export function headers(more = {}) {
  const own = token();
  return own ? { ...more, Authorization: `Bearer ${own}` } : more;
}

export function path(parts, query = {}) {
  const filled = Object.entries(query).filter(([, value]) => value !== "" && value !== undefined && value !== null);
  const search = new URLSearchParams(filled).toString();
  return `api/v1/${parts.map((part) => encodeURIComponent(part)).join("/")}${search ? `?${search}` : ""}`;
}

/** Ask for something; `body` is sent as JSON. A follower's redirect to the leader is told, as the page may not go there. */
export async function ask(parts, { method = "GET", query = {}, body, signal, key } = {}) {
  const more = body === undefined ? {} : { "Content-Type": "application/json" };
  if (key) more["Idempotency-Key"] = key;
  let response;
  try {
    response = await fetch(path(parts, query), {
      method,
      headers: headers(more),
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      redirect: "manual",
      cache: "no-store",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Unreachable("the server does not answer");
  }
  if (response.type === "opaqueredirect") {
    throw new Refused(307, { detail: "This server follows. Open the leader's page to change something.", reason: "not-leader" });
  }
  const text = await response.text();
  let answer = {};
  try {
    answer = text ? JSON.parse(text) : {};
  } catch {
    throw new Refused(response.status, { detail: "the answer is not JSON" });
  }
  if (!response.ok) throw new Refused(response.status, answer);
  return answer;
}
