// Numbers, sizes, times as people read them. Whole numbers of 64 bits come as text and stay exact.

export const number = (value) => {
  if (value == null) return "–";
  const text = typeof value === "number" ? String(Math.round(value)) : String(value);
  return text.replace(/\B(?=(\d{3})+(?!\d))/g, ",");
};

export const compact = (value) => {
  const count = Number(value);
  if (count >= 1e9) return `${(count / 1e9).toFixed(1)} G`;
  return count >= 1e6 ? `${(count / 1e6).toFixed(1)} M` : number(value);
};

export const age = (ms) => {
  if (ms == null) return "–";
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const seconds = ms / 1000;
  if (seconds < 10) return `${seconds.toFixed(1).replace(".0", "")} s`;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 129600 ? `${(seconds / 3600).toFixed(1)} h` : `${(seconds / 86400).toFixed(1)} d`;
};

/** A size in the units of the texts that Python makes: of 1,024 each. */
export const bytes = (count) => {
  if (count == null) return "–";
  let size = Number(count), unit = 0;
  for (; size >= 1024 && unit < 3; unit++) size /= 1024;
  return `${unit && size < 100 ? size.toFixed(1) : size.toFixed(0)} ${["B", "kB", "MB", "GB"][unit]}`;
};

/** How large a text is on its way, in UTF-8. */
export const sizeBytes = (text) => new TextEncoder().encode(text).length;

const two = (part) => String(part).padStart(2, "0");

/** A time of day in the lab's zone, as its clocks showed it then; `exact` to the millisecond. */
export const clock = (ms, zone, exact = false) => {
  const at = new Date(ms + zone.offsetAt(ms));
  const text = `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}:${two(at.getUTCSeconds())}`;
  return exact ? `${text}.${String(at.getUTCMilliseconds()).padStart(3, "0")}` : text;
};

export const dayOf = (ms, zone) => new Date(ms + zone.offsetAt(ms)).toISOString().slice(0, 10);

/** A time of today by its clock, another one with its day. */
export const dayClock = (ms, zone, nowMs) => {
  if (ms == null) return "–";
  const day = dayOf(ms, zone);
  return day === dayOf(nowMs, zone) ? clock(ms, zone) : `${day} ${clock(ms, zone).slice(0, 5)}`;
};

export const percent = (share) => {
  const known = share * 100, text = known < 0.1 ? "<0.1" : known > 99.9 && known < 100 ? ">99.9" : known.toFixed(1).replace(".0", "");
  return share ? `${text} % null` : "";
};
export const plural = (count, noun) => `${number(count)} ${noun}${String(count) === "1" ? "" : "s"}`;
