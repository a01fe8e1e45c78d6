// The lab's zone: how far its clocks were ahead of UTC at each time.

export class Zone {
  /** `[since when, how far]` in seconds, in the order of time; the first and the last go on for ever. */
  constructor(offsets) {
    this.offsets = offsets;
  }

  /** In milliseconds, at a time in milliseconds. */
  offsetAt(ms) {
    const { offsets } = this;
    let at = offsets.length - 1;
    while (at > 0 && ms < offsets[at][0] * 1000) at--;
    return offsets[at][1] * 1000;
  }

  /** A time at which its clocks show what those of UTC show at another; where they are changed just then, one nearby. */
  utcOf(localMs) {
    return localMs - this.offsetAt(localMs - this.offsetAt(localMs));
  }
}
