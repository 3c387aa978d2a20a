// Consumer groups: the list, and one group with its members, its lag, and the reset of its offsets.

import { get, post, session } from "./api.js";
import { Line } from "./charts.js";
import { dialog, h, note, put } from "./dom.js";
import { badge, number, time } from "./format.js";
import { filterField, pager, table } from "./table.js";
import { STAY, form, groupLink, head, into, redraw, repeat, topicLink } from "./view.js";

const SIZE = 50;
const SECONDS = 2;
/** How often the lag of the last hour is read. */
const HOUR_SECONDS = 60;
const STATES = ["", "Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Dead"];

export async function groupsView({ main, query, signal, set }) {
  const list = h("div");
  const read = () => into(list, signal, () => listed(query, signal, change));
  const change = (changes) => {
    set(changes);
    return read();
  };
  const states = h("select", { "aria-label": "State", onchange: () => change({ state: states.value, start: "" }) },
    STATES.map((state) => h("option", { value: state, selected: state === (query.state ?? "") }, state || "All states")));
  put(main, head("Consumer groups"),
    h("div", { class: "tools-row" }, filterField(query.filter ?? "", "Filter by name", (filter) => change({ filter, start: "" })), states), list);
  await read();
}

async function listed(query, signal, change) {
  const { sort = "id", order = "asc" } = query;
  const told = await get("groups", { ...query, limit: SIZE }, signal);
  const columns = [
    { name: "Group", sort: "id", cell: (row) => groupLink(row.id) },
    { name: "State", sort: "state", cell: (row) => badge(row.state) },
    { name: "Members", right: true, cell: (row) => number(row.members) },
    { name: "Topics", right: true, cell: (row) => number(row.topics) },
    { name: "Lag", right: true, cell: (row) => number(row.lag) },
    { name: "Protocol", cell: (row) => h("span", { class: "soft" }, [row.type, row.protocol].filter(Boolean).join(", ")) },
  ];
  return [
    table(columns, told.groups, {
      sort, order, label: "Consumer groups", onsort: (by, way) => change({ sort: by, order: way, start: "" }),
      empty: told.total ? "No group matches." : "No group has joined or committed an offset yet.",
    }),
    pager(told.start, SIZE, told.matched, (start) => change({ start: start || "" })),
  ];
}

export async function groupView({ main, parts, signal, again }) {
  const id = parts[0];
  const line = new Line("Lag of all partitions", number, `Sampled every ${SECONDS} s while this page is open.`);
  const hour = h("div");
  const top = h("div");
  const members = h("div");
  const lags = h("div");
  await get("group", { id }, signal); // an error fills the page
  put(main, top, h("div", { class: "panel" }, line.node), hour, h("section", {}, h("h2", {}, "Members"), members), h("section", {}, h("h2", {}, "Lag by partition"), lags));
  repeat(signal, HOUR_SECONDS, async () => put(hour, lastHour(await get("group/lags", { id }, signal))));
  await repeat(signal, SECONDS, async () => {
    const told = await get("group", { id }, signal);
    const lag = told.offsets?.reduce((sum, row) => sum + (row.lag ?? 0), 0) ?? null;
    if (lag !== null) line.add(lag);
    const tools = session.writes ? [
      h("button", { onclick: () => move(told, again) }, "Reset offsets"),
      h("button", { class: "danger", disabled: told.state !== "Empty", title: told.state === "Empty" ? null : "A group with members cannot be deleted", onclick: () => remove(id) }, "Delete group"),
    ] : [];
    redraw(top, head(id, {
      crumb: h("a", { href: "#/groups" }, "Consumer groups"), badges: [badge(told.state)], tools,
      sub: `${number(told.member_count)} member${told.member_count === 1 ? "" : "s"} · lag ${number(lag)}${told.assignor ? ` · assignor ${told.assignor}` : ""}`,
    }));
    redraw(members, table([
      { name: "Client", cell: (row) => h("span", { class: "strong" }, row.client) },
      { name: "Host", cell: (row) => h("span", { class: "mono" }, row.host.replace(/^\//, "")) },
      { name: "Assigned", cell: (row) => row.assigned === null ? "unknown" : row.assigned.map((each) => h("div", {}, topicLink(each.topic), ` ${ranges(each.partitions)}`)) },
      { name: "Member id", cell: (row) => h("span", { class: "mono soft" }, row.instance ? `${row.instance} · ` : "", row.id) },
    ], told.members, { label: "Members", empty: "The group has no members now." }));
    redraw(lags, told.offsets === null ? h("p", { class: "calm" }, "The group has too many partitions to be shown.") : table([
      { name: "Topic", cell: (row) => topicLink(row.topic) },
      { name: "Partition", right: true, cell: (row) => row.partition },
      { name: "Committed", right: true, cell: (row) => number(row.committed) },
      { name: "End", right: true, cell: (row) => number(row.end) },
      { name: "Lag", right: true, cell: (row) => number(row.lag) },
    ], told.offsets, { label: "Lag", empty: "The group has not committed an offset." }));
  }, (error) => note(error.message, "bad"));
}

function lastHour(told) {
  if (told.why) return h("p", { class: "calm" }, told.why);
  const line = new Line("Lag in the last hour", number, `A note a minute since ${time(told.at[0])}. The broker keeps an hour, and forgets it when it stops.`);
  line.show(told.records);
  return h("div", { class: "panel" }, line.node);
}

/** 0–3, 7 */
function ranges(partitions) {
  const sorted = [...partitions].sort((one, other) => one - other);
  const found = [];
  for (const each of sorted) {
    if (found.length && found.at(-1)[1] === each - 1) found.at(-1)[1] = each;
    else found.push([each, each]);
  }
  return found.map(([from, to]) => (from === to ? from : `${from}–${to}`)).join(", ");
}

/** Move a group: first a preview of the new offsets, then the change. */
function move(group, again) {
  const box = dialog(`Reset offsets of ${group.id}`);
  const topics = [...new Set(group.offsets.map((row) => row.topic))];
  const topic = h("select", {}, h("option", { value: "" }, "All topics"), topics.map((name) => h("option", { value: name }, name)));
  const to = h("select", {}, [["earliest", "The beginning"], ["latest", "The end"], ["offset", "An offset"], ["time", "A time"], ["shift", "A number of records forward or back"]]
    .map(([id, name]) => h("option", { value: id }, name)));
  const value = h("input", { "aria-label": "Value", hidden: true });
  const shown = h("div");
  let isSeen = false;
  const stale = () => {
    value.hidden = !["offset", "time", "shift"].includes(to.value);
    value.placeholder = { time: "2026-01-31 12:00", offset: "offset", shift: "-100" }[to.value] ?? "";
    isSeen = false;
    put(shown);
    const button = box.querySelector("button.main");
    if (button) put(button, "Preview");
  };
  for (const field of [topic, to, value]) field.addEventListener("input", stale);
  form(box, [
    h("div", { class: "two" }, h("label", { class: "field" }, "Topic", topic), h("label", { class: "field" }, "Continue at", to)), value, shown,
  ], "Preview", async () => {
    const given = to.value === "time" && !/^\d+$/.test(value.value) ? Date.parse(value.value.replace(" ", "T")) : Number(value.value || 0);
    if (!Number.isSafeInteger(given)) throw new Error("That is neither a number nor a time.");
    const done = await post("group/reset", { id: group.id, to: to.value, value: given, topic: topic.value || null, apply: isSeen });
    if (isSeen) {
      note(`${group.id} continues at other offsets in ${number(done.moves.length)} partitions.`);
      again();
      return null;
    }
    put(shown, table([
      { name: "Topic", cell: (row) => row.topic }, { name: "Partition", right: true, cell: (row) => row.partition },
      { name: "Now", right: true, cell: (row) => number(row.from) }, { name: "New", right: true, cell: (row) => h("span", { class: "strong" }, number(row.to)) },
      { name: "New lag", right: true, cell: (row) => number(row.end - row.to) },
    ], done.moves.slice(0, 200), { label: "Preview" }), h("p", { class: "hint" }, `${number(done.moves.length)} partitions. Nothing has been changed yet.`));
    isSeen = true;
    put(box.querySelector("button.main"), "Reset");
    return STAY;
  });
}

function remove(id) {
  const box = dialog(`Delete ${id}`);
  form(box, h("p", {}, "Its committed offsets are deleted, too. Consumers that join it again start where their setting auto.offset.reset says."), "Delete group", async () => {
    await post("group/delete", { id });
    note(`${id} has been deleted.`);
    location.hash = "#/groups";
  });
}
