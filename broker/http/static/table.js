// Tables with columns that sort, pages, and the field that filters.

import { h } from "./dom.js";
import { number } from "./format.js";

/**
 * A table. A column has a `name`, a `cell(row)`, and optionally `sort` (the key of its order) and `right`.
 */
export function table(columns, rows, { sort = "", order = "asc", onsort = null, empty = "Nothing here.", label, kind = "" } = {}) {
  const head = columns.map((column) => {
    const isSorted = column.sort && column.sort === sort;
    const attrs = { scope: "col", class: column.right ? "right" : null };
    if (!column.sort || !onsort) return h("th", attrs, column.name);
    const next = isSorted && order === "asc" ? "desc" : "asc";
    attrs["aria-sort"] = isSorted ? (order === "asc" ? "ascending" : "descending") : "none";
    const arrow = isSorted ? (order === "asc" ? " ↑" : " ↓") : "";
    return h("th", attrs, h("button", { class: "sort", onclick: () => onsort(column.sort, next) }, column.name + arrow));
  });
  const body = rows.map((row) =>
    h("tr", {}, columns.map((column) => h("td", { class: column.right ? "right" : column.class }, column.cell(row)))));
  return h("div", { class: "scroll" },
    h("table", { "aria-label": label, class: kind || null },
      h("thead", {}, h("tr", {}, head)),
      h("tbody", {}, body.length ? body : h("tr", {}, h("td", { colspan: columns.length, class: "empty" }, empty)))));
}

/** The numbers of the shown rows, their total, and the buttons for the previous and next page. */
export function pager(start, size, matched, go) {
  if (matched <= size && !start) return h("p", { class: "pager" }, `${number(matched)} in total`);
  const end = Math.min(start + size, matched);
  return h("p", { class: "pager" },
    h("button", { disabled: start === 0, onclick: () => go(Math.max(0, start - size)), "data-key": "p" }, "← Previous"),
    h("span", {}, `${number(start + 1)}–${number(end)} of ${number(matched)}`),
    h("button", { disabled: end >= matched, onclick: () => go(start + size), "data-key": "n" }, "Next →"));
}

/** A field that calls back a short time after the last key. */
export function filterField(value, label, changed) {
  let timer = 0;
  const field = h("input", {
    type: "search", class: "filter", placeholder: label, "aria-label": label, value, "data-search": true,
    autocomplete: "off", spellcheck: "false", maxlength: 1000,
    oninput: () => {
      clearTimeout(timer);
      timer = setTimeout(() => changed(field.value), 200);
    },
  });
  return field;
}
