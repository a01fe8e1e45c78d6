// Moments as people name them: a time of day, of another day with its date.

import { clock, dayOf } from "./figures.js";

/** A time in the lab's zone; its date in front when that is not today's. */
export const moment = (ms, zone, nowMs, exact = false) => {
  const time = clock(ms, zone, exact), day = dayOf(ms, zone);
  return day === dayOf(nowMs, zone) ? time : `${day} ${time}`;
};

/** The same of a time as the kernel writes it. */
export const shortTime = (text, zone, nowMs) => (text.startsWith(`${dayOf(nowMs, zone)} `) ? text.slice(11) : text);
