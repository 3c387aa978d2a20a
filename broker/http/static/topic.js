// One topic: its messages, partitions, settings and readers, and the query that writes it.

import { get, post, session } from "./api.js";
import { graph } from "./charts.js";
import { dialog, h, note, prose, put } from "./dom.js";
import { badge, bytes, number } from "./format.js";
import { jobPanel } from "./jobs.js";
import { messagesTab } from "./messages.js";
import { settingsTable } from "./rest.js";
import { table } from "./table.js";
import { form, groupLink, head, into } from "./view.js";

export async function topicView(at) {
  const { main, signal, parts } = at;
  const [name, tab = "messages"] = parts;
  const told = await get("topic", { name }, signal);
  const tabs = [["messages", "Messages"], ["partitions", `Partitions ${number(told.partition_count)}`], ["settings", "Settings"], ["groups", "Consumer groups"]];
  if (told.job) tabs.push(["query", told.kind === "topic" ? "Read by queries" : "Query"]);
  const records = told.partitions.reduce((sum, part) => sum + Math.max(0, part.end - part.start), 0);
  const size = told.partitions.every((part) => part.bytes !== null) ? told.partitions.reduce((sum, part) => sum + part.bytes, 0) : null;
  const some = told.partitions.length < told.partition_count ? `in the first ${number(told.partitions.length)} partitions ` : "";
  const body = h("div");
  put(main,
    head(name, {
      crumb: h("a", { href: "#/topics" }, "Topics"),
      badges: [told.kind === "topic" ? null : badge(told.kind), told.internal ? badge("internal") : null].filter(Boolean),
      sub: [
        h("span", { title: "End offsets minus first offsets, including gaps from compaction, transactions and queries." }, `${number(records)} record${records === 1 ? "" : "s"}`),
        ` ${some}· ${bytes(size)} · ${number(told.partition_count)} partition${told.partition_count === 1 ? "" : "s"}`,
      ],
      tools: !session.writes || told.internal ? [] : [
        h("button", { class: "danger", onclick: () => remove(name) }, "Delete topic"),
        ["topic", "stream"].includes(told.kind) ? h("button", { class: "main", onclick: () => produce(told, at.again) }, "Produce a record") : null,
      ],
    }),
    h("nav", { class: "tabs", "aria-label": "Of this topic" }, tabs.map(([id, label]) =>
      h("a", { href: `#/topics/${encodeURIComponent(name)}/${id}`, "aria-current": id === tab ? "page" : null }, label))),
    body);
  if (tab === "partitions") put(body, partitions(told));
  else if (tab === "settings") await into(body, signal, async () => settingsTable((await get("topic/settings", { name }, signal)).settings, {
    query: at.query, set: at.set, change: session.writes ? (row) => change(name, row, at.again) : null,
  }));
  else if (tab === "groups") await groups(body, name, signal);
  else if (tab === "query" && told.job) put(body, jobs(told));
  else await messagesTab(body, told, at);
}

function partitions(told) {
  return table([
    { name: "Partition", right: true, cell: (row) => row.index },
    { name: "Leader", right: true, cell: (row) => row.leader },
    { name: "Epoch", right: true, cell: (row) => row.epoch },
    { name: "First offset", right: true, cell: (row) => number(row.start) },
    { name: "End offset", right: true, cell: (row) => number(row.end) },
    { name: "Offsets", right: true, cell: (row) => number(row.end - row.start) },
    { name: "Size", right: true, cell: (row) => bytes(row.bytes) },
    { name: "", cell: (row) => h("a", { href: `#/topics/${encodeURIComponent(told.name)}/messages?partition=${row.index}` }, "Messages") },
  ], told.partitions, { label: "Partitions" });
}

async function groups(body, name, signal) {
  const rows = [];
  const list = h("div");
  put(body, list);
  let start = 0;
  while (start !== null && !signal.aborted) {
    let told;
    await into(list, signal, async () => {
      told = await get("topic/groups", { name, start }, signal);
      rows.push(...told.groups);
      return table([
        { name: "Group", cell: (row) => groupLink(row.id) },
        { name: "State", cell: (row) => badge(row.state) },
        { name: "Partitions with offsets", right: true, cell: (row) => number(row.partitions) },
        { name: "Lag", right: true, cell: (row) => number(row.lag) },
      ], rows, { label: "Groups", empty: told.next === null ? "No group has committed an offset for this topic." : "Looking …" });
    });
    if (!told) return;
    start = told.next;
  }
}

function jobs({ name, job }) {
  const all = [...(job.writes ? [job.writes] : []), ...job.read_by];
  return [graph(all, name), h("div", { class: "panels" }, all.map((each) => jobPanel(each, each.topic !== name)))];
}

/** A dialog for one record. */
function produce(told, again) {
  const box = dialog(`Produce to ${told.name}`);
  const key = h("textarea", { rows: 1, "aria-label": "Key", placeholder: "none" });
  const value = h("textarea", { rows: 8, autofocus: true, "aria-label": "Value" });
  const headers = h("textarea", { rows: 2, placeholder: "name: value, one a line", "aria-label": "Headers" });
  const partition = h("select", {}, h("option", { value: "" }, "by the key"), told.partitions.map((part) => h("option", { value: part.index }, part.index)));
  const isNull = h("input", { type: "checkbox", onchange: () => { value.disabled = isNull.checked; } });
  form(box, [
    h("div", { class: "two" }, h("label", { class: "field" }, "Key", key), h("label", { class: "field" }, "Partition", partition)),
    h("label", { class: "field" }, "Value", value),
    h("label", {}, isNull, "null: a tombstone, which deletes the key in a compacted topic"),
    h("label", { class: "field" }, "Headers", headers),
  ], "Produce", async () => {
    const lines = headers.value.split("\n").filter((line) => line.trim());
    const done = await post("topic/records", {
      topic: told.name,
      key: key.value === "" ? null : key.value,
      value: isNull.checked ? null : value.value,
      partition: partition.value === "" ? null : Number(partition.value),
      headers: lines.map((line) => {
        const [name, ...rest] = line.split(":");
        return [name.trim(), rest.join(":").trim()];
      }),
    });
    note(`Appended to partition ${done.partition} at offset ${number(done.offset)}.`);
    again();
  });
}

/** A dialog for one setting. */
function change(topic, row, again) {
  const box = dialog(row.name);
  const value = h("textarea", { rows: 2, autofocus: true, spellcheck: "false", "aria-label": "Value" }, row.value ?? "");
  const isDefault = h("input", { type: "checkbox", onchange: () => { value.disabled = isDefault.checked; } });
  form(box, [h("p", { class: "soft" }, prose(row.doc)), h("label", { class: "field" }, "Value", value), h("label", {}, isDefault, "as the broker's settings say")], "Change", async () => {
    await post("topic/alter", { name: topic, settings: { [row.name]: isDefault.checked ? null : value.value.trim() } });
    note(`${row.name} has been changed.`);
    again();
  });
}

/** The visitor must type the topic's name to delete it, because this cannot be undone. */
function remove(name) {
  const box = dialog(`Delete ${name}`);
  const typed = h("input", { autofocus: true, autocomplete: "off", spellcheck: "false", "aria-label": "The topic's name" });
  form(box, [
    h("p", {}, "All its records are deleted permanently."),
    h("label", { class: "field" }, `Type ${name} to delete it`, typed),
  ], "Delete topic", async () => {
    if (typed.value !== name) throw new Error(`That is not ${name}.`);
    await post("topic/delete", { name });
    note(`${name} has been deleted.`);
    location.hash = "#/topics";
  });
}
