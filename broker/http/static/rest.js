// The smaller views: transactions, users and ACLs, the broker's settings.

import { get } from "./api.js";
import { dotted, h, prose, put } from "./dom.js";
import { badge, duration, number } from "./format.js";
import { filterField, pager, table } from "./table.js";
import { head, into, topicLink } from "./view.js";

const SIZE = 200;

/** A view of one list that the broker filters and pages. */
function listView(title, sub, path, label, shown) {
  return async ({ main, query, signal, set }) => {
    const list = h("div");
    const change = (changes) => {
      set(changes);
      return read();
    };
    const read = () => into(list, signal, async () => {
      const told = await get(path, query, signal);
      return [shown(told), told.enforced === false ? null : pager(told.start, SIZE, told.matched, (start) => change({ start: start || "" }))];
    });
    put(main, head(title, { sub: prose(sub) }), h("div", { class: "tools-row" }, filterField(query.filter ?? "", label, (filter) => change({ filter, start: "" }))), list);
    await read();
  };
}

export const transactionsView = listView("Transactions", "Transactional ids. Those with an open transaction come first.", "transactions", "Filter by transactional id",
  (told) => table([
    { name: "Transactional id", cell: (row) => h("span", { class: "strong" }, row.id) },
    { name: "State", cell: (row) => badge(row.state) },
    { name: "Age", right: true, cell: (row) => (row.state === "Ongoing" ? duration(row.age_ms) : "–") },
    { name: "Timeout", right: true, cell: (row) => duration(row.timeout_ms) },
    { name: "Producer", right: true, cell: (row) => `${row.producer_id}, epoch ${row.epoch}` },
    { name: "Partitions", cell: (row) => row.partitions.map((each, at) => [at ? ", " : "", topicLink(each.topic), ` ${each.partitions.join(" ")}`]) },
  ], told.transactions, { label: "Transactions", empty: "There are no transactional producers." }));

const acls = listView("Users & ACLs", "The rights and credentials of users. Change them with `barnabas acls` and `barnabas users`.", "acls", "Filter by principal or resource",
  (told) => (told.enforced ? table([
    { name: "Principal", cell: (row) => h("span", { class: "strong" }, row.principal) },
    { name: "May", cell: (row) => badge(row.permission) },
    { name: "Operation", cell: (row) => row.operation },
    { name: "Resource", cell: (row) => row.resource.toLowerCase().replace(/_/g, " ") },
    { name: "Name", cell: (row) => h("span", { class: "mono" }, row.name, row.pattern === "PREFIXED" ? "…" : "") },
    { name: "From", cell: (row) => row.host },
  ], told.acls, { label: "ACLs", empty: "There are no ACLs." })
    : h("p", { class: "calm" }, "ACLs are not enforced: authorizer.class.name is not set, so everybody may do everything.")));

export async function aclsView(at) {
  await acls(at);
  if (at.signal.aborted) return;
  const list = h("div");
  at.main.append(h("section", {}, h("h2", {}, "Users with SCRAM credentials"), list));
  await into(list, at.signal, async () => {
    const told = await get("users", {}, at.signal);
    return [table([
      { name: "User", cell: (row) => h("span", { class: "strong" }, row.name) },
      { name: "Credentials", cell: (row) => row.credentials.map((each) => `${each.mechanism}, ${number(each.iterations)} iterations`).join("; ") },
    ], told.users, { label: "Users", empty: "No user has SCRAM credentials." }),
    told.matched > told.users.length ? h("p", { class: "hint" }, `${number(told.matched - told.users.length)} more are not shown.`) : null];
  });
}

export async function settingsView({ main, query, signal, set }) {
  const list = h("div");
  put(main, head("Settings", { sub: "Of this broker." }), list);
  await into(list, signal, async () => settingsTable((await get("broker/settings", {}, signal)).settings, { query, set }));
}

/** Settings with their meaning, filtered in the page; those that somebody has set come first. `change(row)` edits one. */
export function settingsTable(settings, { query, set, change = null }) {
  const rows = h("div");
  const show = (filter) => {
    const wanted = filter.toLowerCase();
    const found = settings.filter((each) => each.name.includes(wanted) || each.doc.toLowerCase().includes(wanted));
    found.sort((one, other) => one.is_default - other.is_default || (one.name < other.name ? -1 : 1));
    put(rows, table([
      { name: "Setting", cell: (row) => h("span", { class: row.is_default ? "mono name" : "mono name strong" }, dotted(row.name)) },
      { name: "Value", cell: (row) => (row.sensitive ? h("span", { class: "null" }, "hidden") : h("span", { class: "mono" }, value(row.value))) },
      ...(change ? [{ name: "", class: "tight", cell: (row) => (row.read_only ? null : h("button", { class: "quiet", "aria-label": `Change ${row.name}`, onclick: () => change(row) }, "Edit")) }] : []),
      { name: "Set by", cell: (row) => (row.is_default ? h("span", { class: "soft" }, "default") : badge(row.source)) },
      { name: "Meaning", class: "doc", cell: (row) => prose(row.doc) },
    ], found, { label: "Settings", kind: change ? "settings edited" : "settings", empty: "No setting matches." }));
  };
  show(query.filter ?? "");
  return [h("div", { class: "tools-row" }, filterField(query.filter ?? "", "Filter by name or meaning", (filter) => {
    set({ filter });
    show(filter);
  })), rows];
}

const value = (text) => (text === null ? "–" : text === "" ? h("span", { class: "null" }, "empty") : text.length > 300 ? `${text.slice(0, 300)} …` : text);
