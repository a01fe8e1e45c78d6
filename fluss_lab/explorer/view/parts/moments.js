// Moments as people name them: a time of day, of another day with its date.

import { clock } from "./figures.js";

const dateOf = (ms, offsetMs) => new Date(ms + (offsetMs || 0)).toISOString().slice(0, 10);

/** A time in the lab's zone; its date in front when that is not today's. */
export const moment = (ms, offsetMs, nowMs, exact = false) => {
  const time = clock(ms, offsetMs, exact), date = dateOf(ms, offsetMs);
  return date === dateOf(nowMs, offsetMs) ? time : `${date} ${time}`;
};

/** The same of a time as the kernel writes it: by the offset to UTC that there was then. */
export const shortTime = (text, offsetMs, nowMs) => (text.startsWith(`${dateOf(nowMs, offsetMs)} `) ? text.slice(11) : text);
