// The broker at a glance.

import { get } from "./api.js";
import { Line } from "./charts.js";
import { h, put } from "./dom.js";
import { badge, bytes, duration, number } from "./format.js";
import { table } from "./table.js";
import { head, redraw, repeat } from "./view.js";

const SECONDS = 3;

export async function overviewView({ main, signal }) {
  const rate = new Line("Records appended per second", (value) => number(Math.round(value)), `Sampled every ${SECONDS} s while this page is open.`);
  let before = null;
  const body = h("div");
  put(main, body);
  await repeat(signal, SECONDS, async () => {
    const told = await get("overview", {}, signal);
    const now = performance.now();
    if (told.appended) {
      // The broker counts every few seconds: a missing count is not drawn as 0.
      if (before === null) before = { records: told.appended.records, now };
      else if (told.appended.records !== before.records || now - before.now > 7000) {
        rate.add(Math.max(0, told.appended.records - before.records) / ((now - before.now) / 1000));
        before = { records: told.appended.records, now };
      } else if (rate.samples.length) rate.add(rate.samples.at(-1));
      if (!rate.samples.length) rate.add(0);
    }
    redraw(body, shown(told, rate));
  }, (error) => put(body, h("p", { class: "wrong", role: "alert" }, error.message)));
}

function shown(told, rate) {
  const { counts } = told;
  const up = told.uptime_ms === undefined ? "" : ` · up for ${duration(told.uptime_ms)}`;
  return [
    head("Overview", { sub: `barnabas ${told.version} · speaks Kafka ${told.kafka}${up}` }),
    h("div", { class: "tiles" },
      tile("Topics", counts.topics, "#/topics", `and ${number(counts.internal_topics)} internal`),
      tile("Partitions", counts.partitions, null, "of all topics"),
      tile("Consumer groups", counts.groups, "#/groups"),
      tile("Query topics", counts.query_topics, "#/queries"),
      tile("Streams", counts.streams, "#/queries"),
      told.connections === undefined ? null : tile("Connections", told.connections, null, "of Kafka clients")),
    told.appended ? h("div", { class: "panel" }, rate.node) : null,
    h("div", { class: "panels" },
      h("div", { class: "panel" }, h("h2", {}, "Broker"), h("dl", { class: "facts" },
        fact("Cluster id", h("span", { class: "mono" }, told.cluster)), fact("Node", `${told.node}, controller ${told.controller}`),
        fact("ACLs", told.has_authorizer ? "enforced" : "not enforced: everybody may do everything"),
        told.listeners.map((each) => fact(each.name === each.protocol ? each.name : `${each.name} (${each.protocol})`, h("span", { class: "mono" }, each.address))))),
      (told.disks ?? []).map(disk),
      told.events ? h("div", { class: "panel" }, h("h2", {}, "Warnings and errors in the log since the start"),
        told.events.length
          ? table([
            { name: "Level", cell: (row) => badge(row.level), class: "tight" },
            { name: "Event", cell: (row) => h("span", { class: "mono" }, row.event) },
            { name: "Times", cell: (row) => number(row.count), right: true },
          ], told.events, { label: "Warnings" })
          : h("p", { class: "soft" }, "Nothing.")) : null),
  ];
}

function tile(name, value, href, more = null) {
  const inside = [h("div", { class: "name" }, name), h("div", { class: "value" }, number(value)), h("div", { class: "more" }, more ?? " ")];
  return href ? h("a", { class: "tile", href }, inside) : h("div", { class: "tile" }, inside);
}

const fact = (name, value) => [h("dt", {}, name), h("dd", {}, value)];

function disk({ path, total, usable, logs }) {
  const part = (size, name) => {
    const filled = h("i", { class: name });
    filled.style.width = `${(100 * Math.max(0, size)) / Math.max(1, total)}%`;
    return filled;
  };
  return h("div", { class: "panel" }, h("h2", {}, "Disk"),
    h("p", { class: "mono soft" }, path),
    h("div", { class: "bar", role: "img", "aria-label": `${bytes(usable)} of ${bytes(total)} are free` }, part(logs, ""), part(total - usable - logs, "other")),
    h("p", {}, `${bytes(usable)} free of ${bytes(total)} · logs take ${bytes(logs)}`));
}
