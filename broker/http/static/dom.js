// Elements from values. Text becomes text nodes and never markup, so no text of a record can run.

const SVG = "http://www.w3.org/2000/svg";

/** An element; children are nodes, texts, lists of them, or nothing. */
export function h(tag, attrs = {}, ...children) {
  return fill(document.createElement(tag), attrs, children);
}

/** The same for SVG. */
export function s(tag, attrs = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attrs, children);
}

function fill(node, attrs, children) {
  for (const [name, value] of Object.entries(attrs)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...nodes(children));
  return node;
}

function nodes(children) {
  return children
    .flat(Infinity)
    .filter((each) => each !== undefined && each !== null && each !== false)
    .map((each) => (each instanceof Node ? each : String(each)));
}

/** Give an element other children. */
export function put(node, ...children) {
  node.replaceChildren(...nodes(children));
  return node;
}

/** A text whose parts in backquotes are code. */
export function prose(text) {
  return text.split("`").map((part, at) => (at % 2 ? h("code", {}, part) : part));
}

/** A dotted name, which may break only after a dot. */
export function dotted(name) {
  return name.split(/(?<=\.)/).map((part) => [part, h("wbr")]);
}

/** A short note at the bottom of the page. */
export function note(text, kind = "") {
  const shown = h("div", { class: `note ${kind}` }, text);
  document.getElementById("notes").append(shown);
  setTimeout(() => shown.remove(), 6000);
}

/** A dialog that is removed when it is closed. */
export function dialog(title, ...children) {
  const box = h("dialog", { "aria-label": title, onclose: () => box.remove() },
    h("header", {}, h("h2", {}, title),
      h("button", { class: "quiet", "aria-label": "Close", onclick: () => box.close() }, "✕")),
    ...children);
  document.body.append(box);
  box.showModal();
  return box;
}

const ICONS = {
  overview: "M3 12l9-8 9 8M5.5 10v9.5h13V10M10 19.5v-5h4v5",
  topics: "M4 6h16M4 12h16M4 18h10",
  groups: "M9 11a3.2 3.2 0 1 0 0-6.4A3.2 3.2 0 0 0 9 11zM3 19.5c0-3.3 2.7-5.5 6-5.5s6 2.2 6 5.5M16 5a3 3 0 0 1 0 5.8M17.5 14.3c2.2.7 3.5 2.6 3.5 5.2",
  jobs: "M6 8.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM6 20.500a2.5 2.5 0 1 0 0-5 2.500 2.500 0 0 0 0 5zM18 14.500a2.500 2.500 0 1 0 0-5 2.500 2.500 0 0 0 0 5zM8.500 6c5 0 4 6 7 6M8.500 18c5 0 4-6 7-6",
  transactions: "M4 8h13l-3.500-3.500M20 16H7l3.500 3.500",
  security: "M12 3l7.500 3v5.500c0 4.600-3.200 7.800-7.500 9.500-4.300-1.700-7.500-4.900-7.500-9.500V6zM9 12l2.200 2.200L15.200 10",
  settings: "M4 7h9M17 7h3M4 17h3M11 17h9M15 9.200a2.200 2.200 0 1 0 0-4.400 2.200 2.200 0 0 0 0 4.400zM9 19.200a2.200 2.200 0 1 0 0-4.400 2.200 2.200 0 0 0 0 4.400z",
  theme: "M12 4a8 8 0 1 0 8 8 6 6 0 0 1-8-8z",
  help: "M9.200 9.200a2.800 2.800 0 1 1 4.300 2.400c-1 .6-1.500 1.100-1.500 2.200M12 17.200v.1M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18z",
  out: "M14 4h5v16h-5M4 12h11M11 8l4 4-4 4",
};

/** An icon, which screen readers skip. */
export function icon(name) {
  return s("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true" }, s("path", { d: ICONS[name] }));
}
