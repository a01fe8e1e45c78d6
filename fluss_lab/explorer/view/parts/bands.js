// The bands: which offsets of each bucket are in the lake, in the log, in both.

import { h, s } from "./dom.js";
import { number } from "./figures.js";

let patterns = 0;

/** A row of the answer `buckets` with numbers to draw by; texts stay beside them. In a table of the lake a bucket that it has nothing of lags by all that it has. */
export function bandOf(row, isInLake) {
  const [partition, bucket, start, local, end, , lakeStart, lakeEnd, bytes, leader, error] = row;
  const known = end != null;
  const first = known ? Number(start ?? end) : 0;
  const tiered = lakeEnd == null ? (isInLake ? first : null) : Number(lakeEnd);
  return {
    lag: !known || tiered == null ? null : Math.max(0, Number(end) - tiered),
    partition, bucket, bytes, leader, error, known, start: first, local: known ? Number(local ?? first) : 0,
    end: known ? Number(end) : 0, lakeStart: Number(lakeStart ?? 0), lakeEnd: lakeEnd == null ? null : Number(lakeEnd),
    endText: known ? number(end) : "?",
  };
}

export function whereIs(band, offset) {
  if (!band.known) return "not known";
  if (offset >= band.end) return "not written yet";
  const inLake = band.lakeEnd != null && offset >= band.lakeStart && offset < band.lakeEnd;
  const kind = offset < band.local ? "remote" : "local";
  if (offset < band.start) return inLake ? "only in the lake" : "no longer held";
  return inLake ? `in the lake and in the log (${kind})` : `only in the log (${kind})`;
}

function layout(count) {
  const row = count <= 6 ? 56 : count <= 14 ? 24 : count <= 24 ? 15 : count <= 48 ? 12 : count <= 110 ? 4 : 2;
  const lane = row >= 56 ? 10 : row >= 24 ? 7 : row >= 15 ? 5 : row >= 12 ? 4 : row >= 4 ? 1.5 : 1;
  return { row, lane, gap: row >= 12 ? 1 : 0, big: count <= 48 };
}

function scaleOf(edge, max, left, width) {
  const decades = Math.max(1, Math.ceil(Math.log10(max + 1)));
  if (!edge) return { at: (v) => left + (v / max) * width, back: (x) => ((x - left) / width) * max, decades };
  const middle = left + width / 2;
  return {
    at: (v) => middle + ((Math.sign(v) * Math.log10(1 + Math.abs(v))) / decades) * (width / 2),
    back: (x) => {
      const far = ((x - middle) / (width / 2)) * decades;
      return Math.sign(far) * (10 ** Math.abs(far) - 1);
    },
    decades,
  };
}

function ticksOf(edge, max, decades) {
  if (edge) {
    const ticks = [[0, "read boundary"]];
    for (let k = decades; k >= 1; k--) if (10 ** k <= max * 1.2) ticks.push([-(10 ** k), `−${number(10 ** k)}`], [10 ** k, `+${number(10 ** k)}`]);
    return ticks;
  }
  const power = 10 ** Math.floor(Math.log10(max / 6 || 1));
  const step = Math.max(1, [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => max / each <= 6) || max / 5);
  const ticks = [];
  for (let v = 0; v <= max; v += step) ticks.push([v, number(v)]);
  return ticks;
}

/** Of the names of partitions before the bands: what is beside them, and of each character. */
const NAME_LEFT = 48, NAME_PX = 7;
const cutTo = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** Draws the buckets; `o.hover(band, offset)` is called while one is pointed at, with null when none is. */
export function drawBands(bands, width, o) {
  const { row, lane, gap, big } = layout(bands.length);
  const parted = bands.some((band) => band.partition != null), edge = o.scale === "edge";
  const longest = Math.max(0, ...bands.map((band) => (band.partition || "").length));
  const left = big ? (parted ? Math.min(200, NAME_LEFT + longest * NAME_PX) : 56) : 56, right = big ? 132 : 24, top = big ? 20 : 16;
  const span = Math.max(120, width - left - right);
  const max = Math.max(1, ...bands.map((band) => Math.max(band.end, band.lakeEnd || 0)));
  const scale = scaleOf(edge, max, left, span);
  const hatch = `fx-hatch-${++patterns}`;
  const groups = [];
  let y = top, before = null;
  bands.forEach((band, at) => {
    if (parted && before !== null && band.partition !== before) y += big ? 1 : 2;
    groups.push(drawBand(band, at, { y, row, lane, gap, big, left, width, scale, edge, hatch, isFirst: band.partition !== before }));
    before = band.partition;
    y += row;
  });
  const height = y + (big ? 4 : 0);
  const svg = s(
    "svg", { width, height, role: "img", "aria-label": o.label, class: "fx-bands" },
    s("defs", null, s("pattern", { id: hatch, width: 4, height: 4, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      s("rect", { width: 4, height: 4, fill: "var(--fx-log-fill)", "fill-opacity": 0.18 }),
      s("rect", { width: 1.6, height: 4, fill: "var(--fx-log-fill)" }))),
    axis(ticksOf(edge, max, scale.decades), { scale, edge, width, top, height, big }),
    s("text", { x: left - 14, y: 11, class: "axis", "text-anchor": "end" }, "bucket"),
    big ? [s("text", { x: width - 64, y: 11, class: "axis", "text-anchor": "end" }, "end"),
      s("text", { x: width - 16, y: 11, class: "axis", "text-anchor": "end" }, "lag")] : null,
    groups,
  );
  follow(svg, bands, { left, span, top, height, scale, edge, hover: o.hover, pick: o.pick });
  return svg;
}

function drawBand(band, at, p) {
  const origin = p.edge ? (band.lakeEnd == null ? band.start : band.lakeEnd) : 0;
  const x = (v) => p.scale.at(v - origin);
  const group = s("g", { "data-at": at }, s("rect", { x: 0, y: p.y, width: p.width, height: p.row, fill: "transparent" }));
  const rect = (from, to, y, height, fill, opacity) => {
    if (to > from) group.append(s("rect", { x: x(from), y, width: Math.max(1.5, x(to) - x(from)), height, fill, "fill-opacity": opacity }));
  };
  const lakeEnd = band.lakeEnd || 0, two = p.lane * 2 + p.gap;
  const y = p.row >= 56 ? p.y + 8 : p.y + (p.row - two) / 2;
  if (!p.big) {
    const thick = p.row >= 4 ? p.row - 1 : p.row;
    rect(band.lakeStart, Math.min(band.start, lakeEnd), p.y, thick, "var(--fx-lake-fill)", 0.5);
    rect(Math.max(band.lakeStart, Math.min(band.start, lakeEnd)), lakeEnd, p.y, thick, "var(--fx-lake-fill)");
    rect(Math.max(lakeEnd, band.start), band.end, p.y, thick, "var(--fx-log-fill)");
    if (at % 20 === 0) group.append(s("text", { x: p.left - 14, y: p.y + 8, class: "lbl2", "text-anchor": "end" }, band.label ?? band.bucket));
    return group;
  }
  group.append(s("rect", { x: x(0), y, width: Math.max(0, x(band.end) - x(0)), height: two, fill: "var(--fx-hover)" }));
  rect(band.lakeStart, lakeEnd, y, p.lane, "var(--fx-lake-fill)");
  rect(band.start, Math.min(band.local, band.end), y + p.lane + p.gap, p.lane, `url(#${p.hatch})`);
  rect(Math.max(band.local, band.start), band.end, y + p.lane + p.gap, p.lane, "var(--fx-log-fill)");
  if (band.lakeEnd != null && band.end > 0) group.append(s("rect", { x: x(band.lakeEnd) - 0.75, y: y - 2, width: 1.5, height: two + 4, fill: "var(--fx-ink)" }));
  if (p.row >= 56 && !p.edge) notes(group, band, x, y + two + 15);
  const text = p.row >= 56 ? y + p.lane + 5 : p.y + p.row / 2 + 4;
  if (band.partition != null && p.isFirst) group.append(s("text", { x: 16, y: text, class: "lbl" }, cutTo(band.partition, Math.floor((p.left - NAME_LEFT) / NAME_PX)), s("title", null, band.partition)));
  group.append(s("text", { x: p.left - 14, y: text, class: "lbl2", "text-anchor": "end" }, band.bucket));
  group.append(s("text", { x: p.width - 64, y: text, class: band.known ? "lbl2" : "lblbad", "text-anchor": "end" }, band.known ? band.endText : "not known"));
  group.append(s("text", { x: p.width - 16, y: text, class: band.lag ? "lbl" : "lbl2", "text-anchor": "end" }, number(band.lag)));
  return group;
}

/** Offsets under a band, where there is room for them. */
function notes(group, band, x, y) {
  const note = (v, text, anchor) => group.append(s("text", { x: x(v), y, class: "axis", "text-anchor": anchor }, text));
  const near = x(0) + 110;
  if (band.lakeEnd) note(band.lakeEnd, `lake to ${number(band.lakeEnd)}`, x(band.lakeEnd) < near ? "start" : "end");
  const limit = band.lakeEnd ? x(band.lakeEnd) - 110 : Infinity;
  if (band.start > 0 && x(band.start) + 90 < limit) note(band.start, `log from ${number(band.start)}`, "start");
  if (band.local > band.start && x(band.local) - x(band.start) > 110 && x(band.local) + 120 < limit) note(band.local, `log local from ${number(band.local)}`, "start");
}

function axis(ticks, p) {
  const taken = [];
  const fits = (x, width) => {
    const from = x - width / 2 - 8, to = x + width / 2 + 8;
    if (to > p.width - (p.big ? 100 : 4) || taken.some(([a, b]) => from < b && a < to)) return false;
    taken.push([from, to]);
    return true;
  };
  return ticks.map(([v, text]) => {
    const x = p.scale.at(v), width = text.length * 6, isFirst = v === 0 && !p.edge;
    return [
      s("line", { x1: x, x2: x, y1: p.top - 4, y2: p.height - 4, stroke: "var(--fx-line)", "stroke-width": 1 }),
      fits(isFirst ? x + width / 2 : x, width) ? s("text", { x, y: 11, class: "axis", "text-anchor": isFirst ? "start" : "middle" }, text) : null,
    ];
  });
}

function follow(svg, bands, p) {
  const hair = s("line", { y1: p.top - 4, y2: p.height - 4, stroke: "var(--fx-ink-2)", "stroke-width": 1, visibility: "hidden", "pointer-events": "none" });
  svg.append(hair);
  const away = () => {
    hair.setAttribute("visibility", "hidden");
    p.hover(null);
  };
  const pointed = (event) => {
    const x = event.clientX - svg.getBoundingClientRect().left, group = event.target.closest("g[data-at]");
    if (!group || x < p.left || x > p.left + p.span) return null;
    const band = bands[Number(group.dataset.at)], origin = p.edge ? (band.lakeEnd ?? band.start) : 0;
    return { x, band, offset: Math.max(0, Math.round(p.scale.back(x) + origin)) };
  };
  svg.addEventListener("mousemove", (event) => {
    const at = pointed(event);
    if (!at) return away();
    hair.setAttribute("visibility", "visible");
    hair.setAttribute("x1", at.x);
    hair.setAttribute("x2", at.x);
    return p.hover(at.band, at.offset);
  });
  svg.addEventListener("click", (event) => {
    const at = pointed(event);
    if (at) p.pick(at.band, at.offset);
  });
  svg.addEventListener("mouseleave", away);
}

/** All of a table's records on one line: the lake above, the log below, a tick where a read changes over. */
export function drawSpine(bands, label) {
  const sum = (of) => bands.reduce((total, band) => total + of(band), 0);
  const total = sum((band) => Math.max(band.end, band.lakeEnd || 0)) || 1;
  const lake = (sum((band) => band.lakeEnd || 0) / total) * 100, lakeFrom = (sum((band) => Math.min(band.lakeStart, band.lakeEnd || 0)) / total) * 100;
  const held = sum((band) => band.end - band.start), start = (sum((band) => band.start) / total) * 100;
  return h("div", { class: "fx-spine" }, s(
    "svg", { width: "100%", height: 10, role: "img", "aria-label": label },
    s("rect", { width: "100%", height: 9, fill: "var(--fx-hover)" }),
    s("rect", { x: `${lakeFrom}%`, width: `${Math.max(0, lake - lakeFrom)}%`, height: 4, fill: "var(--fx-lake-fill)" }),
    held ? s("rect", { x: `${start}%`, y: 5, width: `${100 - start}%`, height: 4, fill: "var(--fx-log-fill)" }) : null,
    lake ? s("svg", { x: `${lake}%`, overflow: "visible" }, s("rect", { x: -1.5, y: -1, width: 1.5, height: 11, fill: "var(--fx-ink)" })) : null,
  ));
}
