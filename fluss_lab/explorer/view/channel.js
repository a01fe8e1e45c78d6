// Questions to the kernel and their answers: of each slot only the newest counts, and one whose answers were lost is asked again.

import { Pauses } from "./parts/pauses.js";

/** Without news for so long a question is asked again, then after twice as long, up to the second. */
const AGAIN_MS = 5000, AGAIN_MAX_MS = 60000;

/** A widget may be shown at several places, and each of them hears all answers: its own have its name. */
const newName = () => [...crypto.getRandomValues(new Uint32Array(2))].map((part) => part.toString(36)).join("");

export class Channel {
  constructor(model) {
    this.model = model;
    this.view = newName();
    /** Whether the kernel is gone: restarted, or shut down. What it knew of this widget is gone with it. */
    this.hasEnded = false;
    this.waiting = new Map();
    /** What failed is asked again by itself after them. */
    this.pauses = new Pauses();
    this.seq = 0;
    this.heard = null;
    this.listen = (message) => this.take(message);
    this.end = () => {
      this.hasEnded = true;
    };
    model.on("msg:custom", this.listen);
    model.on("comm_live_update", this.end);
  }

  /** Asks; `then` is called with each answer, errors included, unless a newer question of the slot was asked. */
  ask(slot, kind, body, then) {
    const seq = ++this.seq, since = Date.now(), message = { slot, seq, kind, ...body };
    this.waiting.set(slot, { seq, then, message, since, number: null, wait: AGAIN_MS, due: since + AGAIN_MS });
    this.send(message);
  }

  /**
   * Asks again what has had no answer, or not its last one: a notebook server that limits how much a kernel says drops messages, and
   * so does a connection that breaks. The kernel answers a question that it is still at once, and does nothing twice.
   */
  askAgain() {
    const now = Date.now();
    for (const asked of this.hasEnded ? [] : this.waiting.values()) {
      if (asked.isWhole || now < asked.due) continue;
      asked.wait = Math.min(2 * asked.wait, AGAIN_MAX_MS);
      asked.due = now + asked.wait;
      this.send(asked.message);
    }
  }

  send(message) {
    try {
      this.model.send({ ...message, view: this.view });
    } catch {
      this.end();
    }
  }

  take(message) {
    const asked = message && message.view === this.view && this.waiting.get(message.slot);
    if (!asked || asked.seq !== message.seq || asked.isWhole) return;
    this.hasEnded = false;
    this.heard = Date.now();
    asked.due = this.heard + asked.wait;
    if (message.number !== undefined) asked.number = message.number;
    // The end says which answer was the last.
    if (message.last !== undefined) asked.isWhole = asked.number === message.last;
    if (message.error) asked.hasFailed = true;
    if (message.error) this.pauses.failed(message.slot);
    // How far it is says nothing of how it ends.
    else if (asked.isWhole && !asked.hasFailed) this.pauses.end(message.slot);
    if (message.number === undefined) return;
    asked.answered = true;
    asked.then(message);
  }

  /** Forgets a slot: an answer that is still to come is dropped. */
  drop(slot) {
    this.waiting.delete(slot);
  }

  /** Forgets the slots of a table; those of the lab stay. */
  dropTable() {
    for (const slot of [...this.waiting.keys()]) if (slot !== "tree" && !slot.startsWith("lab ")) this.waiting.delete(slot);
  }

  isWaiting(slot) {
    const asked = this.waiting.get(slot);
    return Boolean(asked && !asked.answered);
  }

  /** How long a slot's question has had no answer. */
  silentMs(slot) {
    return this.isWaiting(slot) ? Date.now() - this.waiting.get(slot).since : 0;
  }

  close() {
    this.model.off("msg:custom", this.listen);
    this.model.off("comm_live_update", this.end);
    this.send({ slot: "leave", seq: ++this.seq, kind: "leave" });
    this.waiting.clear();
  }
}
