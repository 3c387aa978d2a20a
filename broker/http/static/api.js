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

/** The lines of an answer as they come, each with a JSON value. A line with an error ends them. */
export async function* lines(path, query, signal) {
  const answer = await reached(`/api/${path}${encoded(query)}`, { signal });
  if (!answer.ok) await told(answer, path);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const whole = (rest + value).split("\n");
    rest = whole.pop();
    for (const line of whole) {
      const each = JSON.parse(line);
      if (each.error) throw new Refusal(answer.status, each.error);
      yield each;
    }
  }
}

export function encoded(query) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

async function ask(path, options) {
  return told(await reached(`/api/${path}`, options), path);
}

async function reached(url, options) {
  try {
    return await fetch(url, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    document.dispatchEvent(new Event("away"));
    throw new Away("The broker does not answer.");
  }
}

async function told(answer, path) {
  let value = null;
  try {
    value = await answer.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
  }
  if (answer.ok && value !== null) return value;
  const why = value?.error ?? `${answer.status} ${answer.statusText}`;
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
