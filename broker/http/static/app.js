// The frame of the page: the visitor, the view that the URL names, keys, and the page while the broker is away.

import { Away, begin, logIn, logOut, session } from "./api.js";
import { dialog, h, icon, note, put } from "./dom.js";
import { groupView, groupsView } from "./groups.js";
import { jobsView } from "./jobs.js";
import { overviewView } from "./overview.js";
import { aclsView, settingsView, transactionsView } from "./rest.js";
import { topicView } from "./topic.js";
import { topicsView } from "./topics.js";

const VIEWS = [
  { path: "overview", key: "o", name: "Overview", icon: "overview", show: overviewView },
  { path: "topics", key: "t", name: "Topics", icon: "topics", show: (at) => (at.parts.length ? topicView(at) : topicsView(at)) },
  { path: "groups", key: "g", name: "Consumer groups", icon: "groups", show: (at) => (at.parts.length ? groupView(at) : groupsView(at)) },
  { path: "queries", key: "q", name: "Queries & streams", icon: "jobs", show: jobsView },
  { path: "transactions", key: "x", name: "Transactions", icon: "transactions", show: transactionsView },
  { path: "access", key: "a", name: "Users & ACLs", icon: "security", show: aclsView },
  { path: "settings", key: "s", name: "Settings", icon: "settings", show: settingsView },
];
const main = document.getElementById("main");
const nav = document.getElementById("nav");
const banner = document.getElementById("banner");
const AWAY_MS = 1500;
const HEARTBEAT_MS = 3000;
let leave = new AbortController();
let isAway = false;

// --- where we are ---------------------------------------------------------------------------------------------------

/** The place that the URL names: a view, the rest of the path, and the view's settings. */
function place() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [first, ...parts] = path.split("/").map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  const view = VIEWS.find((each) => each.path === first) ?? VIEWS[0];
  return { view, parts: parts.filter((part) => part !== ""), query: Object.fromEntries(new URLSearchParams(query)) };
}

/** Show the view that the URL names. A view gets a signal that ends with it. */
async function show() {
  leave.abort();
  leave = new AbortController();
  const { signal } = leave;
  const { view, parts, query } = place();
  showNav(view);
  const at = { parts, query, signal, main, set: (changes) => setQuery(query, changes), again: show };
  document.title = [...parts.slice(0, 1), view.name, "barnabas"].join(" · ");
  try {
    await view.show(at);
  } catch (error) {
    if (!signal.aborted) wrong(error);
  }
}

/** Write settings of the view into the URL, so that it can be bookmarked and shared. */
function setQuery(query, changes) {
  Object.assign(query, changes);
  for (const [name, value] of Object.entries(query)) {
    if (value === "" || value === null || value === undefined) delete query[name];
  }
  const search = new URLSearchParams(query).toString();
  history.replaceState(null, "", `${location.hash.split("?")[0] || "#/overview"}${search ? `?${search}` : ""}`);
}

function wrong(error) {
  if (error.name === "AbortError") return;
  if (!(error instanceof Away)) put(main, h("p", { class: "wrong", role: "alert" }, error.message));
}

// --- the frame ------------------------------------------------------------------------------------------------------

function showNav(current) {
  const tools = h("div", { class: "tools" },
    h("button", { class: "quiet", title: "Light or dark (d)", "aria-label": "Light or dark", onclick: turnTheme }, icon("theme")),
    h("button", { class: "quiet", title: "Keys (?)", "aria-label": "Keys", onclick: help }, icon("help")),
    session.log_in && session.csrf
      ? h("button", { class: "quiet", title: "Log out", "aria-label": "Log out", onclick: end }, icon("out"))
      : null);
  put(nav,
    h("a", { class: "brand", href: "#/overview" }, h("img", { src: "icon.svg", alt: "" }), "barnabas"),
    VIEWS.map((view) =>
      h("a", { class: "to", href: `#/${view.path}`, title: `${view.name} (g ${view.key})`, "aria-current": view === current ? "page" : null },
        icon(view.icon), h("span", {}, view.name))),
    h("div", { class: "end" },
      h("p", { class: "who" }, session.log_in ? session.principal.replace(/^User:/, "") : "", session.csrf && !session.writes ? h("span", { class: "badge" }, "read only") : null),
      tools));
}

function turnTheme() {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("theme", next);
  } catch {
    // The choice lasts until the page is left.
  }
}

function help() {
  const keys = [
    ["/", "search or filter"], ["r", "read again"], ["n  p", "next and previous page"], ["j  k", "down and up the rows"],
    ["Enter", "open a row"], ["d", "light or dark"], ["Esc", "leave a field"], ["?", "these keys"],
    ...VIEWS.map((view) => [`g ${view.key}`, view.name]),
  ];
  dialog("Keys", h("dl", { class: "keys" }, keys.map(([key, what]) =>
    [h("dt", {}, key.split(/ +/).map((each) => [h("kbd", {}, each), " "])), h("dd", {}, what)])));
}

// --- keys -----------------------------------------------------------------------------------------------------------

let isGoing = false;

addEventListener("keydown", (event) => {
  const { target, key } = event;
  const isField = target instanceof HTMLElement && target.matches("input, textarea, select");
  if (key === "Escape" && isField) target.blur();
  if (isField || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const view = isGoing && VIEWS.find((each) => each.key === key);
  isGoing = false;
  if (view) {
    location.hash = `#/${view.path}`;
  } else if (key === "g") {
    isGoing = true;
  } else if (key === "/") {
    event.preventDefault();
    main.querySelector("[data-search]")?.focus();
  } else if (key === "?") {
    help();
  } else if (key === "d") {
    turnTheme();
  } else if (key === "r") {
    show();
  } else if (key === "n" || key === "p") {
    main.querySelector(`button[data-key="${key}"]:not(:disabled)`)?.click();
  } else if (key === "j" || key === "k") {
    step(key === "j" ? 1 : -1);
  }
});

/** Move to the next row of a table. */
function step(by) {
  const rows = [...main.querySelectorAll("tbody tr")].map((row) => row.querySelector("a, button")).filter(Boolean);
  const here = rows.findIndex((each) => each.closest("tr").contains(document.activeElement));
  rows[Math.min(Math.max(here + by, 0), rows.length - 1)]?.focus();
}

// --- coming and going -----------------------------------------------------------------------------------------------

/** The form of a login. It stays until somebody has logged in. */
function askWho() {
  leave.abort();
  leave = new AbortController();
  const problem = h("p", { class: "wrong", role: "alert", hidden: true });
  const name = h("input", { name: "name", autocomplete: "username", required: true });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password", required: true });
  const enter = async (event) => {
    event.preventDefault();
    try {
      await logIn(name.value, password.value);
      await show();
    } catch (error) {
      problem.hidden = false;
      put(problem, error.message);
      password.select();
    }
  };
  showNav(null);
  put(main, h("form", { class: "login", onsubmit: enter },
    h("img", { src: "icon.svg", alt: "" }), h("h1", {}, "Log in"), problem,
    h("label", { class: "field" }, "Name", name), h("label", { class: "field" }, "Password", password),
    h("button", { class: "main" }, "Log in")));
  name.focus();
}

async function end() {
  try {
    await logOut();
  } catch (error) {
    note(error.message, "bad");
  }
  session.csrf = "";
  askWho();
}

/** The broker does not answer: show that, and ask until it does. Then load the view again. */
async function waitForBroker(why) {
  if (isAway) return;
  isAway = true;
  banner.hidden = false;
  put(banner, why ? `The broker is not ready: ${why}` : "The broker does not answer. This page continues when the broker is back.");
  for (;;) {
    await new Promise((done) => setTimeout(done, AWAY_MS));
    try {
      const isKnown = await begin();
      isAway = false;
      banner.hidden = true;
      if (isKnown) await show();
      else askWho();
      return;
    } catch (error) {
      if (error instanceof Away && error.message) put(banner, error.message, " This page continues when the broker is back.");
    }
  }
}

document.addEventListener("away", (event) => waitForBroker(event.detail));
document.addEventListener("stranger", askWho);
addEventListener("hashchange", () => {
  if (session.csrf && !isAway) show().then(() => scrollTo(0, 0));
});
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
setInterval(async () => {
  if (isAway || document.hidden) return;
  try {
    await fetch("/healthz", { cache: "no-store" });
  } catch {
    waitForBroker();
  }
}, HEARTBEAT_MS);

begin().then((isKnown) => (isKnown ? show() : askWho())).catch(wrong);
