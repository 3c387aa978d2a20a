// Functions that all views share.

import { Away } from "./api.js";
import { h, note, put } from "./dom.js";

/** The head of a view: a title with badges, the line below it, and its buttons. */
export function head(title, { crumb = null, badges = [], sub = null, tools = [] } = {}) {
  return h("div", { class: "head" },
    h("div", { class: "grow" },
      crumb ? h("p", { class: "crumb" }, crumb) : null,
      h("h1", {}, title, badges.length ? h("span", { class: "badges" }, badges) : null),
      sub ? h("p", { class: "sub" }, sub) : null),
    tools);
}

/** Do something now and at an interval in seconds, until the view is left. `failed` shows errors. */
export function repeat(signal, seconds, work, failed = () => {}) {
  const turn = async () => {
    if (signal.aborted) return;
    try {
      if (!document.hidden) await work();
    } catch (error) {
      if (error.name === "AbortError" || error instanceof Away) return;
      failed(error);
    }
    if (!signal.aborted) setTimeout(turn, seconds * 1000);
  };
  return turn();
}

/** Draw again, unless the visitor moves through the content with keys, or has selected text. */
export function redraw(node, ...children) {
  const { anchorNode, isCollapsed } = getSelection();
  const isUsed = node.contains(document.activeElement) || (!isCollapsed && node.contains(anchorNode));
  if (!isUsed || !node.childElementCount) put(node, children);
}

const asked = new WeakMap();

/** Fill a place with the result, or with the error. If two calls overlap, the later one counts. */
export async function into(node, signal, make) {
  const turn = (asked.get(node) ?? 0) + 1;
  asked.set(node, turn);
  const isLate = () => signal.aborted || asked.get(node) !== turn;
  try {
    const made = await make();
    if (!isLate()) put(node, made);
  } catch (error) {
    if (isLate() || error.name === "AbortError") return;
    if (!(error instanceof Away)) put(node, h("p", { class: "wrong", role: "alert" }, error.message));
  }
}

/** The result that keeps a form open after it was sent. */
export const STAY = Symbol("stay");

/** A form in a dialog: `send` is called when it is sent. An error is shown; otherwise the dialog closes. */
export function form(box, fields, button, send) {
  const problem = h("p", { class: "wrong", role: "alert", hidden: true });
  const submit = h("button", { class: "main" }, button);
  box.append(h("form", {
    onsubmit: async (event) => {
      event.preventDefault();
      submit.disabled = true;
      try {
        if ((await send()) !== STAY) box.close();
        problem.hidden = true;
      } catch (error) {
        problem.hidden = false;
        put(problem, error.message);
      }
      submit.disabled = false;
    },
  }, problem, fields, h("div", { class: "end" },
    h("button", { type: "button", onclick: () => box.close() }, "Cancel"), submit)));
  (box.querySelector("[autofocus]") ?? box.querySelector("form input, form select, form textarea"))?.focus();
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    note("Copied.");
  } catch {
    note("The browser does not allow this page to copy text.", "bad");
  }
}

export const topicLink = (name) => h("a", { href: `#/topics/${encodeURIComponent(name)}`, class: "strong" }, name);
export const groupLink = (id) => h("a", { href: `#/groups/${encodeURIComponent(id)}`, class: "strong" }, id === "" ? "(empty name)" : id);
