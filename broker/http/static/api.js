// The broker's JSON API: requests with the session's token, and whether the broker answers at all.

export const session = { principal: "", csrf: "", log_in: false, writes: false };

/** An error that the broker answers, with the broker's message. */
export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The broker does not answer. */
export class Away extends Error {}

export async function get(path, query = {}, signal = undefined) {
  return ask(`${path}${encoded(query)}`, { signal });
}

export async function post(path, body) {
  return ask(path, {
    method: "POST",
    body: JSON.stringify(body),
    headers: { "Content-Type": "application/json", "x-csrf-token": session.csrf },
  });
}

export function encoded(query) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(`/api/${path}`, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    document.dispatchEvent(new Event("away"));
    throw new Away("The broker does not answer.");
  }
  let told = null;
  try {
    told = await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
  }
  if (answer.ok && told !== null) return told;
  const why = told?.error ?? `${answer.status} ${answer.statusText}`;
  if (answer.status === 503) {
    document.dispatchEvent(new CustomEvent("away", { detail: why }));
    throw new Away(why);
  }
  if (answer.status === 401 && path !== "login") document.dispatchEvent(new Event("stranger"));
  throw new Refusal(answer.status, why);
}

/** The current visitor; whether a login is needed first. */
export async function begin() {
  Object.assign(session, await get("session"));
  if (session.csrf) session.writes = (await get("console")).writes;
  return Boolean(session.csrf);
}

export async function logIn(name, password) {
  const body = JSON.stringify({ name, password });
  const headers = { "Content-Type": "application/json" };
  await ask("login", { method: "POST", body, headers });
  return begin();
}

export async function logOut() {
  await post("logout", {});
}
