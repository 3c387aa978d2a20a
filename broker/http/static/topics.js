// The list of topics. The broker filters, sorts and pages it: there may be ten thousand.

import { get, post, session } from "./api.js";
import { dialog, h, note, prose, put } from "./dom.js";
import { badge, bytes, duration, number } from "./format.js";
import { filterField, pager, table } from "./table.js";
import { form, head, into, topicLink } from "./view.js";

const SIZE = 50;
const KINDS = { "": "All kinds", topic: "Plain topics", query: "Query topics", stream: "Streams", "dead-letter": "Dead letters" };

export async function topicsView({ main, query, signal, set }) {
  const list = h("div");
  const read = () => into(list, signal, () => listed(query, signal, change));
  const change = (changes) => {
    set(changes);
    return read();
  };
  const kinds = h("select", { "aria-label": "Kind", onchange: () => change({ kind: kinds.value, start: "" }) },
    Object.entries(KINDS).map(([kind, name]) => h("option", { value: kind, selected: kind === (query.kind ?? "") }, name)));
  const internal = h("input", { type: "checkbox", checked: query.internal === "true", onchange: () => change({ internal: internal.checked ? "true" : "", start: "" }) });
  put(main, head("Topics", { tools: session.writes ? h("button", { class: "main", onclick: create }, "Create a topic") : [] }),
    h("div", { class: "tools-row" },
      filterField(query.filter ?? "", "Filter by name", (filter) => change({ filter, start: "" })),
      kinds, h("label", {}, internal, "Internal topics")),
    list);
  await read();
}

async function listed(query, signal, change) {
  const { sort = "name", order = "asc" } = query;
  const told = await get("topics", { ...query, limit: SIZE }, signal);
  const columns = [
    { name: "Name", sort: "name", cell: (row) => [topicLink(row.name), row.kind === "topic" ? null : [" ", badge(row.kind)], row.internal ? [" ", badge("internal")] : null] },
    { name: "Partitions", sort: "partitions", right: true, cell: (row) => number(row.partitions) },
    { name: "Records", sort: "records", right: true, cell: (row) => number(row.records) },
    { name: "Size", sort: "bytes", right: true, cell: (row) => bytes(row.bytes) },
    { name: "Retention", right: true, cell: retention },
  ];
  return [
    table(columns, told.topics, {
      sort, order, label: "Topics", onsort: (by, way) => change({ sort: by, order: way, start: "" }),
      empty: prose(told.total ? "No topic matches." : "There are no topics yet. Produce a record, or run `barnabas topics create NAME`."),
    }),
    pager(told.start, SIZE, told.matched, (start) => change({ start: start || "" })),
  ];
}

function retention({ cleanup_policy: policy, retention_ms: ms }) {
  if (policy === undefined) return "–";
  const kept = policy.includes("delete") ? duration(Number(ms)) : "";
  return [policy.includes("compact") ? "compacted" : "", kept].filter(Boolean).join(", ");
}

/** A dialog for a new topic, which may be the result of a SELECT. */
function create() {
  const box = dialog("Create a topic");
  const name = h("input", { required: true, autofocus: true, maxlength: 249, spellcheck: "false", "aria-label": "Name" });
  const partitions = h("input", { type: "number", min: 1, placeholder: "as the broker says", "aria-label": "Partitions" });
  const settings = h("textarea", { rows: 3, placeholder: "retention.ms=86400000, one a line", spellcheck: "false", "aria-label": "Settings" });
  const query = h("textarea", { rows: 3, placeholder: "none: a plain topic", spellcheck: "false", "aria-label": "Query" });
  form(box, [
    h("div", { class: "two" }, h("label", { class: "field" }, "Name", name), h("label", { class: "field" }, "Partitions", partitions)),
    h("label", { class: "field" }, "Settings", settings),
    h("label", { class: "field" }, "Its records are the results of this SELECT", query),
  ], "Create", async () => {
    const given = {};
    for (const line of settings.value.split("\n").filter((each) => each.trim())) {
      const [key, ...value] = line.split("=");
      given[key.trim()] = value.join("=").trim();
    }
    if (query.value.trim()) given["barnabas.query"] = query.value.trim();
    const made = { name: name.value.trim(), settings: given };
    if (partitions.value) made.partitions = Number(partitions.value);
    await post("topic/create", made);
    note(`${made.name} has been created.`);
    location.hash = `#/topics/${encodeURIComponent(made.name)}`;
  });
}
