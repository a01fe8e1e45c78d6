// A spark: how a number went over time, with a line that it should stay under.

import { s } from "./dom.js";

const SPARK_WIDTH = 400, SPARK_HEIGHT = 44;

/** Points are [time, value], oldest first; `from` and `to` are the ends of the time shown. */
export function spark(points, { from, to, limit, label, kind }) {
  const max = Math.max(1, ...points.map(([, value]) => value), limit ? limit * 1.15 : 0);
  const x = (time) => ((Math.max(from, time) - from) / Math.max(1, to - from)) * SPARK_WIDTH, y = (value) => SPARK_HEIGHT - 1 - (value / max) * (SPARK_HEIGHT - 4);
  const line = (at, attributes) => s("polyline", { points: at.map(([a, b]) => `${a.toFixed(1)},${b.toFixed(1)}`).join(" "), fill: "none", "vector-effect": "non-scaling-stroke", ...attributes });
  return s(
    "svg", { width: "100%", height: SPARK_HEIGHT, viewBox: `0 0 ${SPARK_WIDTH} ${SPARK_HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    limit ? line([[0, y(limit)], [SPARK_WIDTH, y(limit)]], { stroke: "var(--fx-warn)", "stroke-width": 1, "stroke-dasharray": "3 3" }) : null,
    points.length ? line(points.map(([time, value]) => [x(time), y(value)]), { stroke: kind ? `var(--fx-${kind})` : "var(--fx-ink-2)", "stroke-width": 1.25 }) : null,
    s("line", { x1: 0, x2: SPARK_WIDTH, y1: SPARK_HEIGHT - 0.5, y2: SPARK_HEIGHT - 0.5, stroke: "var(--fx-line)", "stroke-width": 1 }),
  );
}
