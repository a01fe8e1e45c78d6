// Questions to the kernel and their answers: of each slot only the newest counts.

export class Channel {
  constructor(model) {
    this.model = model;
    this.waiting = new Map();
    this.seq = 0;
    this.heard = null;
    this.listen = (message) => this.take(message);
    model.on("msg:custom", this.listen);
  }

  /** Asks; `then` is called with each answer, errors included, unless a newer question of the slot was asked. */
  ask(slot, kind, body, then) {
    const seq = ++this.seq;
    this.waiting.set(slot, { seq, then, kind, since: Date.now() });
    this.model.send({ slot, seq, kind, ...body });
  }

  take(message) {
    const asked = message && this.waiting.get(message.slot);
    if (!asked || asked.seq !== message.seq) return;
    this.heard = Date.now();
    asked.answered = true;
    asked.then(message);
  }

  /** Forgets a slot: an answer that is still to come is dropped. */
  drop(slot) {
    this.waiting.delete(slot);
  }

  /** Forgets every slot but one. */
  dropAllBut(kept) {
    for (const slot of [...this.waiting.keys()]) if (slot !== kept) this.waiting.delete(slot);
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
    this.waiting.clear();
  }
}
