// The pauses before what failed is asked again by itself: they grow for as long as it fails.

const RETRY_S = [1, 2, 4, 8, 16, 30];

/** How long to wait after so many failures in a row. */
export const pauseMs = (failures) => RETRY_S[Math.min(failures, RETRY_S.length) - 1] * 1000;

/** Of each slot: how often its questions have failed in a row, and when one may be asked again without a person's wish. */
export class Pauses {
  constructor() {
    this.slots = new Map();
  }

  failed(slot) {
    const failures = (this.slots.has(slot) ? this.slots.get(slot).failures : 0) + 1;
    this.slots.set(slot, { failures, due: Date.now() + pauseMs(failures) });
  }

  isDue(slot) {
    return !this.slots.has(slot) || Date.now() >= this.slots.get(slot).due;
  }

  /** A question was answered to its end: the next failure is the first again. */
  end(slot) {
    this.slots.delete(slot);
  }

  /** Why all of them failed is over. */
  endAll() {
    this.slots.clear();
  }
}
