// The time line of lake snapshots: a bar is a round, its height its rows; a diamond is a compaction.

import { refill, s } from "./dom.js";
import { number } from "./figures.js";
import { moment } from "./moments.js";

const HEIGHT = 76, BASE = 54, HIGH_PX = 36, EDGE = 12, MARK_PX = 6;
/** So far apart two snapshots are drawn at least, where there is room: they stay two. */
const APART_PX = 4;
const NOW_SHARE = 0.3;
const STEPS_MS = [1e3, 5e3, 10e3, 30e3, 60e3, 300e3, 900e3, 3600e3, 108e5, 216e5, 432e5, 864e5, 6048e5, 31536e6];

export const DIAMOND = "M5 1l4 5-4 5-4-5z";

/** What a snapshot is, in a word. */
export const kindOf = ({ operation, ours }) => (operation === "replace" ? "compaction" : ours ? "round" : operation);

/** Where each snapshot is drawn: by its time, but apart from the one before. */
function placesOf(snapshots, x, right) {
  const apart = Math.min(APART_PX, (right - EDGE) / Math.max(1, snapshots.length)), places = snapshots.map(({ time }) => x(time));
  for (let at = 1; at < places.length; at++) places[at] = Math.max(places[at], places[at - 1] + apart);
  for (let at = places.length - 1, limit = right; at >= 0; at--, limit -= apart) places[at] = Math.min(places[at], limit);
  return places;
}

export class TimeLine {
  constructor(id, explorer, choose) {
    this.id = id;
    this.explorer = explorer;
    this.choose = choose;
    this.snapshots = [];
    this.chosen = -1;
    this.root = s("svg", { class: "fx-time", height: HEIGHT, role: "listbox", tabindex: 0, "aria-label": "Lake snapshots by time", onkeydown: (event) => this.key(event), onclick: (event) => this.pick(event) });
  }

  show(snapshots, chosen) {
    this.snapshots = snapshots;
    this.chosen = chosen;
    this.draw();
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key], last = this.snapshots.length - 1;
    const to = event.key === "Home" ? 0 : event.key === "End" ? last : step ? Math.min(last, Math.max(0, this.chosen + step)) : null;
    if (to === null || last < 0) return;
    event.preventDefault();
    event.stopPropagation();
    if (to !== this.chosen) this.choose(to);
  }

  pick(event) {
    const at = event.clientX - this.root.getBoundingClientRect().left;
    let nearest = -1;
    this.places.forEach((x, k) => {
      if (nearest < 0 || Math.abs(x - at) < Math.abs(this.places[nearest] - at)) nearest = k;
    });
    if (nearest >= 0) this.choose(nearest);
  }

  draw() {
    const width = this.root.parentNode ? this.root.parentNode.clientWidth - 2 * 16 : 0, { snapshots, explorer } = this;
    if (width < 50 || !snapshots.length) return;
    this.root.setAttribute("width", width);
    const now = explorer.nowMs(), first = snapshots[0].time, last = snapshots.at(-1).time, span = last - first;
    // Now is on it as long as it leaves the snapshots most of the room.
    const isNow = now - last <= span * NOW_SHARE, end = isNow ? Math.max(now, last) : last + Math.max(1000, span * 0.02), begin = first - Math.max(1000, span * 0.02);
    const x = (time) => EDGE + ((time - begin) / (end - begin)) * (width - 2 * EDGE), most = Math.max(1, ...snapshots.map((each) => (kindOf(each) === "compaction" ? 0 : Number(each.rows || 0))));
    this.places = placesOf(snapshots, x, width - EDGE);
    const wide = Math.max(1, Math.min(MARK_PX, (width - 2 * EDGE) / snapshots.length - 0.5));
    const step = STEPS_MS.find((each) => (end - begin) / each <= Math.max(3, width / 130)) || STEPS_MS.at(-1), ticks = [];
    for (let local = Math.ceil((begin + explorer.zone.offsetAt(begin)) / step) * step; explorer.zone.utcOf(local) < end - step / 4; local += step) ticks.push(explorer.zone.utcOf(local));
    refill(this.root, s("line", { x1: 0, x2: width, y1: BASE + 0.5, y2: BASE + 0.5, stroke: "var(--fx-line-2)" }),
      ticks.map((at) => [s("line", { x1: x(at), x2: x(at), y1: BASE + 1, y2: BASE + 5, stroke: "var(--fx-line-2)" }), this.tick(x(at), at, step, now, width)]),
      snapshots.map((snapshot, at) => this.mark(snapshot, at, most, wide)),
      isNow && s("line", { x1: x(now), x2: x(now), y1: 8, y2: BASE + 4, stroke: "var(--fx-ink-2)", "stroke-dasharray": "2 2" }));
    this.root.setAttribute("aria-activedescendant", this.chosen < 0 ? "" : `${this.id}-${this.chosen}`);
  }

  tick(x, at, step, now, width) {
    const exact = moment(at, this.explorer.zone, now), text = step < 60e3 ? exact : exact.slice(0, -3), half = text.length * 3.2;
    return s("text", { x: Math.min(width - half, Math.max(half, x)), y: BASE + 17, class: "axis", "text-anchor": "middle" }, text);
  }

  mark(snapshot, at, most, wide) {
    const x = this.places[at], isChosen = at === this.chosen, kind = kindOf(snapshot), high = Math.max(3, (Number(snapshot.rows || 0) / most) * HIGH_PX);
    const label = `${kind} at ${this.explorer.when(snapshot.time)}, ${number(snapshot.rows)} rows`;
    return s("g", { id: `${this.id}-${at}`, role: "option", "aria-selected": String(isChosen), "aria-label": label },
      isChosen ? s("rect", { x: x - 8, y: 4, width: 16, height: 52, fill: "var(--fx-sel)" }) : null,
      kind === "compaction" ? s("path", { d: `M${x} 36l5 6-5 6-5-6z`, fill: "none", stroke: "var(--fx-ink)", "stroke-width": 1.4 })
        : s("rect", { x: x - wide / 2, y: BASE - high, width: wide, height: high, fill: kind === "round" ? "var(--fx-lake-fill)" : "var(--fx-ink-2)" }));
  }
}
