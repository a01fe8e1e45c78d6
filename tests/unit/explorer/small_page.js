// A page without a browser: as much of one as the explorer's view needs to be drawn and used. Time goes on by hand.

{
  class Node {
    constructor() {
      this.parentNode = null;
      this.childNodes = [];
    }

    get isConnected() {
      return document.body.contains(this);
    }

    get nextSibling() {
      const all = this.parentNode ? this.parentNode.childNodes : [];
      return all[all.indexOf(this) + 1] || null;
    }

    contains(node) {
      for (let each = node; each; each = each.parentNode) if (each === this) return true;
      return false;
    }

    /** What is taken out loses the focus, also when it is put in again at once. */
    remove() {
      if (this.contains(document.focused)) document.focused = null;
      if (this.parentNode) this.parentNode.childNodes = this.parentNode.childNodes.filter((each) => each !== this);
      this.parentNode = null;
    }
  }

  class Text extends Node {
    constructor(text) {
      super();
      this.nodeType = 3;
      this.textContent = String(text);
    }
  }

  /** A property that is an attribute of its own. */
  const flag = (name) => ({
    get() {
      return this.attributes.has(name);
    },
    set(is) {
      if (is) this.attributes.set(name, "");
      else this.attributes.delete(name);
    },
  });
  const text = (name) => ({
    get() {
      return this.attributes.get(name) ?? "";
    },
    set(to) {
      this.attributes.set(name, String(to));
    },
  });

  class Element extends Node {
    constructor(tag) {
      super();
      this.nodeType = 1;
      this.localName = tag;
      this.tagName = tag.toUpperCase();
      this.attributes = new Map();
      this.listeners = new Map();
      this.style = {};
      this.value = "";
      Object.assign(this, { scrollTop: 0, scrollLeft: 0, scrollHeight: 500, clientWidth: 1000, clientHeight: 500, offsetHeight: 20 });
      this.dataset = new Proxy({}, { get: (_, name) => this.attributes.get(`data-${String(name)}`) });
      const classes = () => this.className.split(" ").filter(Boolean);
      this.classList = {
        contains: (name) => classes().includes(name),
        toggle: (name, is) => (this.className = [...classes().filter((each) => each !== name), ...(is ? [name] : [])].join(" ")),
        add: (name) => this.classList.toggle(name, true),
        remove: (name) => this.classList.toggle(name, false),
      };
    }

    getAttribute(name) {
      return this.attributes.get(name) ?? null;
    }

    setAttribute(name, value) {
      this.attributes.set(name, String(value));
    }

    removeAttribute(name) {
      this.attributes.delete(name);
    }

    get tabIndex() {
      return Number(this.attributes.get("tabindex") ?? (/^(button|input)$/.test(this.localName) ? 0 : -1));
    }

    set tabIndex(to) {
      this.attributes.set("tabindex", String(to));
    }

    // -- what is in it

    get children() {
      return this.childNodes.filter((each) => each.nodeType === 1);
    }

    get firstChild() {
      return this.childNodes[0] || null;
    }

    get lastChild() {
      return this.childNodes.at(-1) || null;
    }

    get textContent() {
      return this.childNodes.map((each) => each.textContent).join("");
    }

    set textContent(to) {
      this.replaceChildren(...(to === "" ? [] : [to]));
    }

    insertBefore(node, next) {
      const made = node instanceof Node ? node : new Text(node);
      made.remove();
      this.childNodes.splice(next ? this.childNodes.indexOf(next) : this.childNodes.length, 0, made);
      made.parentNode = this;
      return made;
    }

    append(...nodes) {
      for (const each of nodes) this.insertBefore(each, null);
    }

    prepend(...nodes) {
      for (const each of nodes.reverse()) this.insertBefore(each, this.firstChild);
    }

    replaceChildren(...nodes) {
      for (const each of [...this.childNodes]) each.remove();
      this.append(...nodes);
    }

    replaceWith(node) {
      this.parentNode.insertBefore(node, this);
      this.remove();
    }

    // -- what is found in it

    matches(selector) {
      return alternatives(selector).some((compounds) => fits(this, compounds));
    }

    closest(selector) {
      return this.matches(selector) ? this : this.parentNode ? this.parentNode.closest(selector) : null;
    }

    querySelectorAll(selector) {
      return this.children.flatMap((each) => [...(each.matches(selector) ? [each] : []), ...each.querySelectorAll(selector)]);
    }

    querySelector(selector) {
      return this.querySelectorAll(selector)[0] || null;
    }

    getBoundingClientRect() {
      return { top: 0, bottom: 20, left: 0, right: 100, width: 100, height: 20 };
    }

    // -- what happens to it

    addEventListener(name, listener) {
      this.listeners.set(name, [...(this.listeners.get(name) || []), listener]);
    }

    fire(name, more = {}) {
      let isStopped = false;
      const event = { type: name, target: this, preventDefault: () => {}, stopPropagation: () => (isStopped = true), ...more };
      for (let each = this; each && !isStopped; each = name === "focus" ? null : each.parentNode) {
        for (const listener of each.listeners.get(name) || []) listener.call(each, { ...event, currentTarget: each });
      }
    }

    click() {
      if (!this.disabled) this.fire("click");
    }

    focus() {
      const isHidden = this.closest("[hidden]") || this.disabled || !(this.tabIndex >= 0 || this.attributes.has("tabindex"));
      if (isHidden || !this.isConnected || document.focused === this) return;
      document.focused = this;
      this.fire("focus");
    }
  }
  for (const name of ["hidden", "disabled"]) Object.defineProperty(Element.prototype, name, flag(name));
  for (const [property, name] of [["className", "class"], ["id", "id"], ["title", "title"], ["placeholder", "placeholder"]]) Object.defineProperty(Element.prototype, property, text(name));

  /** Selectors: names, classes and attributes, one within another, several apart. */
  function alternatives(selector) {
    const found = [[""]];
    for (const [part] of selector.matchAll(/\[[^\]]*\]|[.#]?[\w-]+|\s*,\s*|\s+/g)) {
      if (part.includes(",") && part[0] !== "[") found.push([""]);
      else if (!part.trim()) found.at(-1).push("");
      else found.at(-1)[found.at(-1).length - 1] += ` ${part}`;
    }
    return found.map((compounds) => compounds.map((each) => each.match(/\[[^\]]*\]|[^\s[]+/g) || []));
  }

  function isOf(element, part) {
    if (part[0] === ".") return element.classList.contains(part.slice(1));
    if (part[0] !== "[") return element.localName === part;
    const [, name, , value] = part.match(/^\[([\w-]+)(="?([^"]*)"?)?\]$/);
    return value === undefined ? element.attributes.has(name) : element.getAttribute(name) === value;
  }

  function fits(element, compounds) {
    const last = compounds.at(-1), rest = compounds.slice(0, -1);
    if (!last.every((part) => isOf(element, part))) return false;
    if (!rest.length) return true;
    for (let each = element.parentNode; each; each = each.parentNode) if (fits(each, rest)) return true;
    return false;
  }

  globalThis.document = {
    body: new Element("body"), focused: null, hidden: false,
    createElement: (tag) => new Element(tag), createElementNS: (_, tag) => new Element(tag), createTextNode: (content) => new Text(content),
    get activeElement() {
      return this.focused || this.body;
    },
  };
  globalThis.IntersectionObserver = globalThis.ResizeObserver = class {
    observe() {}

    disconnect() {}
  };

  let now = Date.UTC(2026, 6, 2, 10, 0, 0), ids = 0;
  const timers = new Map();
  const enter = (call, wait, every) => {
    timers.set(++ids, { call, at: now + (wait || 0), every });
    return ids;
  };
  Date.now = () => now;
  globalThis.setTimeout = (call, wait) => enter(call, wait, null);
  globalThis.setInterval = (call, every) => enter(call, every, every);
  globalThis.clearTimeout = globalThis.clearInterval = (id) => timers.delete(id);
  globalThis.requestAnimationFrame = (call) => enter(call, 16, null);
  globalThis.cancelAnimationFrame = (id) => timers.delete(id);

  /** Lets so many milliseconds go by, and what is due in them happen, in order. */
  globalThis.pass = (ms) => {
    const end = now + ms;
    for (;;) {
      const [id, due] = [...timers].sort((a, b) => a[1].at - b[1].at)[0] || [0, { at: Infinity }];
      if (due.at > end) break;
      now = Math.max(now, due.at);
      if (due.every === null) timers.delete(id);
      else due.at += due.every;
      due.call();
    }
    now = end;
  };

  // -- the front end of a notebook, and a kernel that says what a test has it say

  const handlers = new Map();
  let numbers = 0, saved = "{}";
  globalThis.sent = [];
  globalThis.model = {
    get: () => saved,
    set: (_, content) => (saved = content),
    on: (name, listener) => handlers.set(name, [...(handlers.get(name) || []), listener]),
    off: (name, listener) => handlers.set(name, (handlers.get(name) || []).filter((each) => each !== listener)),
    send: (message) => sent.push(JSON.parse(JSON.stringify(message))),
  };
  globalThis.lastOf = (kind) => sent.filter((each) => each.kind === kind).at(-1);
  /** Answers the newest question of a kind. */
  globalThis.tell = (kind, answer, isLast = true) => {
    const asked = lastOf(kind);
    if (!asked) throw new Error(`nothing asks for ${kind}`);
    const { slot, seq, view } = asked, number = ++numbers;
    for (const message of [{ slot, seq, view, kind, number, ...answer }, ...(isLast ? [{ slot, seq, view, last: number }] : [])]) {
      for (const each of handlers.get("msg:custom") || []) each(JSON.parse(JSON.stringify(message)));
    }
  };
  globalThis.press = (element) => {
    element.focus();
    element.click();
  };
  /** A button by its text, or by its title. */
  globalThis.named = (root, name) => root.querySelectorAll("button").find((each) => [each.textContent, each.title].includes(name));
}
