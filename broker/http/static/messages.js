// A topic's messages: pages from any position, a search that continues until it has found enough, and live messages.

import { encoded, get, lines } from "./api.js";
import { h, put } from "./dom.js";
import { brief, bytes, full, number, time } from "./format.js";
import { copy } from "./view.js";

const LIMITS = [25, 50, 100, 200];
const MOST_LIVE = 500;
/** The number of pages that a search requests without a further click. */
const MOST_PAGES = 40;
const FROM = { newest: "Newest first", oldest: "Oldest first", offset: "From an offset", time: "From a time", live: "Live" };

export async function messagesTab(body, topic, { query, signal, set }) {
  const list = new List(topic);
  const status = h("span", { class: "progress" });
  const more = h("p", { class: "pager" });
  let reading = new AbortController();
  signal.addEventListener("abort", () => reading.abort());

  const from = h("select", { "aria-label": "Where to begin" },
    Object.entries(FROM).map(([id, name]) => h("option", { value: id, selected: id === (query.from ?? "newest") }, name)));
  const at = h("input", { "aria-label": "Offset or time", value: query.at ?? "", size: 22 });
  const partition = h("select", { "aria-label": "Partition" }, h("option", { value: "" }, "All partitions"),
    topic.partitions.map((part) => h("option", { value: part.index, selected: String(part.index) === query.partition }, `Partition ${part.index}`)));
  const limit = h("select", { "aria-label": "Messages a page" },
    LIMITS.map((each) => h("option", { value: each, selected: String(each) === (query.limit ?? "50") }, `${each} a page`)));
  const search = h("input", {
    type: "search", "data-search": true, value: query.search ?? "", maxlength: 1000, spellcheck: "false", autocomplete: "off",
    placeholder: "Search key and value; or $.customer.id = 42; or WHERE amount > 10", "aria-label": "Search",
  });
  const stop = h("button", { hidden: true, onclick: () => reading.abort() }, "Stop");

  const restart = async () => {
    const isPlace = from.value === "offset" || from.value === "time";
    at.hidden = !isPlace;
    at.placeholder = from.value === "time" ? "2026-01-31 12:00 or ms" : "offset";
    set({
      from: from.value === "newest" ? "" : from.value, at: isPlace ? at.value : "", partition: partition.value,
      limit: limit.value === "50" ? "" : limit.value, search: search.value.trim(),
    });
    reading.abort();
    reading = new AbortController();
    if (signal.aborted) return;
    list.clear();
    put(more);
    if (from.value !== "live") await page(null, reading.signal);
    else if (isCondition(search.value)) put(status, h("span", { class: "wrong" }, "Live messages cannot be searched with WHERE: choose where to begin."));
    else follow(reading.signal);
  };

  const asked = () => ({
    name: topic.name, partition: partition.value, search: search.value.trim(), limit: limit.value, from: from.value,
    at: from.value === "time" ? milliseconds(at.value) : at.value.trim(),
  });

  /** Continue from a cursor until the page is full, the log ends, or the visitor stops. */
  const page = async (cursor, until) => {
    const seen = { found: 0, lookedAt: 0, read: 0, next: cursor };
    stop.hidden = false;
    try {
      if (isCondition(search.value)) await byCondition(seen, until);
      else await byText(seen, until);
    } catch (error) {
      if (until.aborted) put(status, `Stopped after ${number(seen.lookedAt)} records`);
      else put(status, h("span", { class: "wrong" }, error.message));
    }
    if (until !== reading.signal && !until.aborted) return;
    stop.hidden = true;
    if (signal.aborted) return;
    const { next } = seen;
    list.end(next === null);
    const name = from.value === "newest" ? "Older messages ↓" : "Later messages ↓";
    put(more, next === null || next === undefined ? null : h("button", { "data-key": "n", onclick: () => { reading = new AbortController(); page(next, reading.signal); } }, name));
  };

  const byText = async (seen, until) => {
    for (let pages = 0; pages < MOST_PAGES && !until.aborted; pages += 1) {
      put(status, seen.lookedAt ? `${number(seen.lookedAt)} records searched, ${bytes(seen.read)} …` : "Reading …");
      const told = await get("topic/records", { ...asked(), cursor: seen.next }, until);
      list.add(told.records);
      seen.found += told.records.length;
      seen.lookedAt += told.looked_at;
      seen.read += told.bytes;
      seen.next = told.cursor;
      if (seen.next === null || seen.found >= Number(limit.value)) break;
    }
    put(status, asked().search ? `${number(seen.found)} found in ${number(seen.lookedAt)} records, ${bytes(seen.read)}` : "");
  };

  /** The broker searches in another process, and reports its progress. */
  const byCondition = async (seen, until) => {
    put(status, "Waiting for the search …");
    for await (const told of lines("topic/where", { ...asked(), cursor: seen.next }, until)) {
      list.add(told.records);
      seen.found += told.records.length;
      seen.lookedAt = told.looked_at;
      seen.next = told.cursor;
      const far = `${number(seen.found)} found in ${number(seen.lookedAt)} records`;
      if (told.end === "bound") put(status, h("span", { class: "wrong" }, `${far}. A search takes at most ${told.seconds} s: continue below.`));
      else put(status, told.end ? far : `${far} …`);
    }
  };

  /** Live messages. The browser connects again when the broker ends the answer. */
  const follow = (until) => {
    const { name, partition: only, search: text } = asked();
    const source = new EventSource(`/api/topic/tail${encoded({ name, partition: only, search: text })}`);
    let leftOut = 0;
    const say = (text_) => put(status, h("span", { class: "live" }, text_));
    put(status, "Connecting …");
    stop.hidden = false;
    source.onopen = () => say("Live");
    source.onmessage = (event) => {
      const told = JSON.parse(event.data);
      leftOut += told.left_out;
      list.addFresh(told.records);
      say(leftOut ? `Live: ${number(leftOut)} messages arrived too fast and are left out` : "Live");
    };
    source.addEventListener("refused", (event) => {
      source.close();
      put(status, h("span", { class: "wrong" }, JSON.parse(event.data).error));
    });
    source.onerror = () => put(status, source.readyState === EventSource.CLOSED ? "The broker refused the request." : "Connecting again …");
    until.addEventListener("abort", () => {
      source.close();
      stop.hidden = true;
      put(status, "Stopped");
    });
  };

  for (const field of [from, partition, limit]) field.addEventListener("change", restart);
  for (const field of [search, at]) field.addEventListener("change", restart);
  put(body,
    h("div", { class: "tools-row" }, from, at, partition, h("div", { class: "grow" }, search), limit, stop),
    h("div", { class: "tools-row status" }, status),
    list.node, more);
  await restart();
}

/** Whether a search is a condition of SQL. */
function isCondition(text) {
  return /^\s*where\s/i.test(text);
}

/** A time as people write it, in ms; a number stays unchanged. */
function milliseconds(text) {
  const given = text.trim();
  if (given === "" || /^\d{6,}$/.test(given)) return given;
  const at = Date.parse(given.replace(" ", "T"));
  return Number.isNaN(at) ? given : String(at);
}

/** The table of messages. The details of a row open below it. */
class List {
  constructor(topic) {
    this.topic = topic;
    this.body = h("tbody");
    this.node = h("div", { class: "scroll messages" },
      h("table", { "aria-label": "Messages" },
        h("colgroup", {}, [0, 1, 2, 3, 4, 5].map((at) => h("col", { class: `c${at}` }))),
        h("thead", {}, h("tr", {}, ["", "Part.", "Offset", "Time", "Key", "Value"].map((name, at) => h("th", { scope: "col", class: at === 1 || at === 2 ? "right" : null }, name)))),
        this.body));
  }

  clear() {
    put(this.body);
  }

  /** Show that nothing was found, if there are no rows. */
  end(isAll) {
    if (this.body.childElementCount) return;
    put(this.body, h("tr", {}, h("td", { colspan: 6, class: "empty" }, isAll ? "No messages here." : "Nothing found so far.")));
  }

  add(records) {
    if (records.length && this.body.querySelector(".empty")) this.clear();
    this.body.append(...records.map((record) => this.row(record)));
  }

  addFresh(records) {
    const rows = records.map((record) => this.row(record));
    rows.reverse().forEach((row) => row.classList.add("fresh"));
    this.body.prepend(...rows);
    while (this.body.childElementCount > MOST_LIVE) this.body.lastElementChild.remove();
  }

  row(record) {
    const toggle = h("button", { class: "toggle", "aria-expanded": "false", "aria-label": `Message ${record.partition}, ${record.offset}` }, "▶");
    const row = h("tr", { class: "row" },
      h("td", {}, toggle), h("td", { class: "right" }, record.partition), h("td", { class: "right" }, record.offset), h("td", {}, time(record.timestamp)),
      h("td", { class: "key" }, record.problem ? "" : brief(record.key)), h("td", { class: "value" }, record.problem ?? brief(record.value)));
    let detail = null;
    row.addEventListener("click", (event) => {
      if (getSelection().toString() && event.target !== toggle) return;
      if (detail) {
        detail.remove();
        detail = null;
      } else {
        detail = h("tr", { class: "detail" }, h("td", { colspan: 6 }, this.detail(record)));
        row.after(detail);
      }
      row.classList.toggle("open", Boolean(detail));
      toggle.setAttribute("aria-expanded", String(Boolean(detail)));
      put(toggle, detail ? "▼" : "▶");
    });
    return row;
  }

  detail(record) {
    if (record.problem) return h("p", { class: "wrong" }, `The records of this batch cannot be shown: ${record.problem}`);
    const where = { name: this.topic.name, partition: record.partition, offset: record.offset };
    const place = h("div");
    const show = (whole) => {
      const isCut = record.value?.cut || record.key?.cut || record.headers.length < record.header_count;
      const tools = h("div", { class: "detail-tools" },
        h("button", { onclick: () => copy(whole.value?.text ?? whole.value?.hex ?? "") }, "Copy value"),
        h("a", { class: "button", href: `/api/topic/download${encoded(where)}`, download: `${this.topic.name}-${record.partition}-${record.offset}` }, "Download value"),
        isCut && whole === record ? h("button", { onclick: async () => {
          try {
            show(await get("topic/record", where));
          } catch (error) {
            place.append(h("p", { class: "wrong" }, error.message));
          }
        } }, "Show all") : null,
        h("a", { href: `#/topics/${encodeURIComponent(this.topic.name)}/messages?from=offset&at=${record.offset}&partition=${record.partition}&limit=25` }, "Link to this offset"));
      put(place, tools,
        h("div", { class: "parts" },
          h("div", {}, part("Key", whole.key),
            whole.headers.length ? h("div", { class: "part" }, h("p", { class: "name" }, `Headers (${number(whole.header_count)})`),
              h("dl", { class: "facts mono" }, whole.headers.map(([name, value]) => [h("dt", {}, name), h("dd", {}, brief(value))]))) : null),
          part("Value", whole.value)));
    };
    show(record);
    return place;
  }
}

function part(name, data) {
  const size = data === null ? "" : bytes(data.size);
  const kept = data === null ? 0 : data.hex !== undefined ? data.hex.length / 2 : new Blob([data.text]).size;
  return h("div", { class: "part" },
    h("p", { class: "name" }, `${name} ${size}`, data?.hex !== undefined ? h("span", {}, "not text: hexadecimal") : null,
      data?.cut ? h("span", { class: "badge warning" }, `the first ${bytes(kept)}`) : null),
    h("pre", { tabindex: 0 }, full(data)));
}
