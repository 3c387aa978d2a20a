// Numbers, sizes, times and values as people read them.

import { h } from "./dom.js";

const whole = new Intl.NumberFormat("en");
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

export const number = (value) => (value === null || value === undefined ? "–" : whole.format(value));

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let unit = 0;
  let left = value;
  while (left >= 1024 && unit < UNITS.length - 1) {
    left /= 1024;
    unit += 1;
  }
  return `${unit && left < 100 ? left.toFixed(1) : Math.round(left)} ${UNITS[unit]}`;
}

/** Milliseconds as the two largest units: 3 d 4 h. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 0) return "unlimited";
  const parts = [["d", 86400000], ["h", 3600000], ["min", 60000], ["s", 1000], ["ms", 1]];
  const first = parts.findIndex(([, size]) => ms >= size);
  if (first < 0) return "0 s";
  const [unit, size] = parts[first];
  const rest = parts[first + 1];
  const more = rest && rest[0] !== "ms" ? Math.floor((ms % size) / rest[1]) : 0;
  return `${Math.floor(ms / size)} ${unit}${more ? ` ${more} ${rest[0]}` : ""}`;
}

/** A time in ms since 1970, in the reader's time zone. */
export function time(ms) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return String(ms);
  const two = (value, size = 2) => String(value).padStart(size, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ` +
    `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${two(at.getMilliseconds(), 3)}`;
}

/** A key or value in one line. */
export function brief(data, most = 300) {
  if (data === null) return h("span", { class: "null" }, "null");
  if (data.hex !== undefined) return h("span", { class: "hex" }, spaced(data.hex.slice(0, 96)));
  if (data.size === 0) return h("span", { class: "null" }, "empty");
  return data.text.slice(0, most).replace(/\s+/g, " ");
}

const spaced = (hex) => hex.replace(/(..)(?=.)/g, "$1 ");
const MOST_COLOURED = 60000;
const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|[{}[\],:]|\s+|./gy;

/** A key or value in full: JSON is indented, and its digits stay as they were sent. */
export function full(data) {
  if (data === null) return h("span", { class: "null" }, "null");
  if (data.hex !== undefined) return h("span", { class: "hex" }, spaced(data.hex));
  if (!data.cut && data.text.length <= MOST_COLOURED && isJson(data.text)) return coloured(data.text);
  return data.text;
}

function isJson(text) {
  if (!/^\s*[[{"\d\-tfn]/.test(text)) return false;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** JSON with indentation and colours, from its tokens: parsing it would change large numbers. */
function coloured(text) {
  const out = h("span", { class: "json" });
  const tokens = text.match(TOKEN).filter((token) => token.trim());
  let depth = 0;
  const line = () => out.append(`\n${"  ".repeat(Math.min(depth, 60))}`);
  tokens.forEach((token, at) => {
    const next = tokens[at + 1];
    if (token === "{" || token === "[") {
      depth += 1;
      out.append(token);
      if (next !== "}" && next !== "]") line();
    } else if (token === "}" || token === "]") {
      depth -= 1;
      if (tokens[at - 1] !== "{" && tokens[at - 1] !== "[") line();
      out.append(token);
    } else if (token === ",") {
      out.append(",");
      line();
    } else if (token === ":") {
      out.append(": ");
    } else {
      const kind = token[0] !== '"' ? (/^[-\d]/.test(token) ? "number" : "word") : next === ":" ? "name" : "string";
      out.append(h("span", { class: kind }, token));
    }
  });
  return out;
}

/** A small label of a kind or state. */
export function badge(text, kind = text) {
  return h("span", { class: `badge ${String(kind).toLowerCase().replace(/[^a-z-]/g, "")}` }, text);
}
