// Query topics and streams: the state of each, and all of them as a graph.

import { get } from "./api.js";
import { graph } from "./charts.js";
import { h, prose, put } from "./dom.js";
import { badge, duration, number } from "./format.js";
import { filterField } from "./table.js";
import { head, redraw, repeat, topicLink } from "./view.js";

const SECONDS = 5;

export async function jobsView({ main, query, signal, set }) {
  const list = h("div");
  let told = null;
  const draw = () => {
    if (told) redraw(list, shown(told, (query.filter ?? "").toLowerCase()));
  };
  put(main, head("Queries & streams", { sub: "Topics whose records are the results of a SELECT over other topics." }),
    h("div", { class: "tools-row" }, filterField(query.filter ?? "", "Filter by name, text or source", (filter) => {
      set({ filter });
      draw();
    })), list);
  await repeat(signal, SECONDS, async () => {
    told = await get("jobs", {}, signal);
    draw();
  }, (error) => put(list, h("p", { class: "wrong", role: "alert" }, error.message)));
}

function shown({ jobs, driver, left_out: leftOut }, filter) {
  const found = jobs.filter((job) => [job.topic, job.name, job.text, ...job.sources].some((text) => text.toLowerCase().includes(filter)));
  if (!jobs.length) {
    return h("p", { class: "calm" }, prose("There are no query topics or streams. Create one in `barnabas sql`, with `CREATE TOPIC hot AS SELECT … FROM sensors`."));
  }
  const age = driver.told_ms_ago === null ? "The streams driver has not reported their state yet." : `Reported by the streams driver ${driver.told_ms_ago < 1000 ? "just now" : `${duration(driver.told_ms_ago)} ago`}.`;
  return [
    graph(found),
    h("p", { class: "hint" }, age, leftOut ? ` ${number(leftOut)} more are not shown.` : ""),
    h("section", { class: "panels" }, found.map((job) => jobPanel(job, true))),
  ];
}

/** One query or stream. */
export function jobPanel(job, isLinked) {
  const fact = (name, value) => (value === "" || value === null ? null : [h("dt", {}, name), h("dd", {}, value)]);
  return h("div", { class: "panel stack" },
    h("h2", {}, isLinked ? topicLink(job.topic) : job.topic, " ", badge(job.kind), " ", job.state ? badge(job.state.toLowerCase()) : null, job.denied ? [" ", badge("denied")] : null),
    job.text ? h("pre", { tabindex: 0 }, job.text) : null,
    job.last_error || job.denied ? h("p", { class: "wrong" }, job.denied || job.last_error) : null,
    h("dl", { class: "facts" },
      fact("Reads", job.pattern ? [h("code", {}, job.pattern), ` (${job.sources.length})`] : job.sources.map((name, at) => [at ? ", " : "", topicLink(name)])),
      job.name === job.topic ? null : fact("Name", job.name),
      fact("Owner", job.owner),
      fact("Lag", job.lag === null ? null : number(job.lag)),
      fact("Rows", job.rows === null ? null : `${number(job.rows)}, ${number(Math.round(job.rows_per_second))} each second`),
      fact("On a record that it cannot read", job.on_error === "" ? null : job.on_error),
      fact("Columns", job.schema ? h("code", {}, job.schema) : null)));
}
