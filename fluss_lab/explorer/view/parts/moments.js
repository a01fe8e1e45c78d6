// Moments as people name them: a time of day, of another day with its date.

import { clock } from "./figures.js";

const DAY_MS = 864e5;
const dayOf = (ms, offsetMs) => Math.floor((ms + (offsetMs || 0)) / DAY_MS);

/** A time in the lab's zone; its date in front when that is not today's. */
export const moment = (ms, offsetMs, nowMs, exact = false) => {
  const time = clock(ms, offsetMs, exact);
  return dayOf(ms, offsetMs) === dayOf(nowMs, offsetMs) ? time : `${new Date(ms + (offsetMs || 0)).toISOString().slice(0, 10)} ${time}`;
};
