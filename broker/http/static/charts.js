// Two drawings: a line of samples, and a graph of topics and the jobs between them.

import { h, s } from "./dom.js";

const MOST_SAMPLES = 300;

/** A line of samples: `add(value)` appends one, `show(values)` replaces all. The newest of `MOST_SAMPLES` are at the right. */
export class Line {
  constructor(label, format, hint) {
    this.samples = [];
    this.format = format;
    this.area = s("path", { class: "area" });
    this.path = s("path", { class: "line" });
    this.most = h("span", { class: "most" });
    this.now = h("span", { class: "now" });
    const drawing = s("svg", { viewBox: "0 0 600 90", preserveAspectRatio: "none", role: "img", "aria-label": label },
      s("path", { class: "grid", d: "M0 1H600M0 45H600M0 89H600" }), this.area, this.path);
    this.node = h("figure", { class: "chart" },
      h("figcaption", {}, h("span", {}, label), this.now),
      h("div", { class: "plot" }, drawing, this.most),
      h("p", { class: "hint" }, hint));
  }

  add(value) {
    this.show([...this.samples, value].slice(-MOST_SAMPLES));
  }

  show(values) {
    this.samples = values;
    const most = Math.max(1, ...this.samples);
    const step = 600 / Math.max(40, this.samples.length - 1);
    const from = 600 - step * (this.samples.length - 1);
    const points = this.samples.map((each, at) => `${(from + at * step).toFixed(1)} ${(88 - (each / most) * 84).toFixed(1)}`);
    if (points.length === 1) points.unshift(`${(from - step).toFixed(1)} ${points[0].split(" ")[1]}`);
    this.path.setAttribute("d", `M${points.join("L")}`);
    this.area.setAttribute("d", `M${points.join("L")}V90H${points[0].split(" ")[0]}Z`);
    this.most.textContent = this.format(most);
    this.now.textContent = this.format(values.at(-1));
  }
}

const WIDTH = 208;
const HEIGHT = 44;
const GAP_X = 74;
const GAP_Y = 16;

/** Jobs and the topics that they read, from left to right: each job is drawn at the topic that it writes. */
export function graph(jobs, here = "") {
  const known = new Map();
  const at = (name) => {
    if (!known.has(name)) known.set(name, { name, layer: 0, job: null });
    return known.get(name);
  };
  const edges = [];
  for (const job of jobs) {
    at(job.topic).job = job;
    for (const source of job.sources) {
      at(source);
      if (source !== job.topic) edges.push([source, job.topic]);
    }
  }
  // The longest path from a source. The number of passes is at most the number of topics, so a cycle ends, too.
  for (let pass = 0, moved = true; moved && pass < known.size; pass += 1) {
    moved = false;
    for (const [from, to] of edges) {
      if (at(to).layer <= at(from).layer) {
        at(to).layer = Math.min(at(from).layer + 1, known.size);
        moved = true;
      }
    }
  }
  const layers = [];
  for (const each of known.values()) (layers[each.layer] ??= []).push(each);
  const columns = layers.filter(Boolean);
  columns.forEach((column, x) => {
    const heightOf = (node) => {
      const before = edges.filter(([, to]) => to === node.name).map(([from]) => at(from).y ?? 0);
      return before.length ? before.reduce((sum, y) => sum + y, 0) / before.length : 0;
    };
    column.sort((one, other) => heightOf(one) - heightOf(other) || (one.name < other.name ? -1 : 1));
    column.forEach((node, y) => Object.assign(node, { x: x * (WIDTH + GAP_X), y: y * (HEIGHT + GAP_Y) }));
  });
  const tallest = Math.max(0, ...columns.map((column) => column.length)) * (HEIGHT + GAP_Y) - GAP_Y;
  for (const column of columns) {
    const shift = (tallest - (column.length * (HEIGHT + GAP_Y) - GAP_Y)) / 2;
    for (const node of column) node.y += shift;
  }
  const width = columns.length * (WIDTH + GAP_X) - GAP_X;
  const lines = edges.map(([from, to]) => {
    const [a, b] = [at(from), at(to)];
    const [x1, y1, x2, y2] = [a.x + WIDTH, a.y + HEIGHT / 2, b.x, b.y + HEIGHT / 2];
    const bend = Math.max(30, (x2 - x1) / 2);
    return s("path", { class: "edge", d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2 - 5} ${y2}`, "marker-end": "url(#arrow)" });
  });
  const boxes = [...known.values()].map((node) => box(node, node.name === here));
  return h("div", { class: "graph" },
    s("svg", { width: width + 4, height: tallest + 4, viewBox: `-2 -2 ${width + 4} ${tallest + 4}`, role: "img", "aria-label": "Sources and results" },
      s("defs", {}, s("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 5, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" },
        s("path", { class: "head", d: "M0 0L8 4L0 8Z" }))),
      lines, boxes));
}

function box({ name, x, y, job }, isHere) {
  const kind = job?.kind ?? "topic";
  const under = job ? [kind, job.state.toLowerCase()].filter(Boolean).join(" · ") : "topic";
  return s("a", { href: `#/topics/${encodeURIComponent(name)}`, "aria-label": `${name}, ${under}` },
    s("g", { class: `box ${kind}${isHere ? " here" : ""}`, transform: `translate(${x} ${y})` },
      s("title", {}, job?.text ? `${name}\n${job.text.slice(0, 500)}` : name),
      s("rect", { width: WIDTH, height: HEIGHT, rx: 7 }),
      s("rect", { class: "side", width: 4, height: HEIGHT - 14, x: 7, y: 7, rx: 2 }),
      s("text", { x: 20, y: 19 }, name.length > 26 ? `${name.slice(0, 25)}…` : name),
      s("text", { class: "under", x: 20, y: 34 }, under)));
}
