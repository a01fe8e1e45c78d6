// The makers of elements. Text enters the page as text nodes, attributes by setAttribute; there is no other way to make one.

const SVG = "http://www.w3.org/2000/svg";

function put(element, attributes, children) {
  for (const name in attributes || {}) {
    const value = attributes[name];
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(9)) {
    if (child == null || child === false) continue;
    element.append(child.nodeType ? child : document.createTextNode(child));
  }
  return element;
}

export const h = (tag, attributes, ...children) => put(document.createElement(tag), attributes, children);
export const s = (tag, attributes, ...children) => put(document.createElementNS(SVG, tag), attributes, children);

const keyed = (part, key) => (key === undefined ? null : [...part.querySelectorAll("[data-key]")].find((each) => each.dataset.key === key && !each.disabled));
/** What takes the focus where nothing in a part can. */
const homeOf = (part) => part.closest("[tabindex]");

/** Gives an element other children. The focus in it stays, by the key of what has it, or goes to what is around: lost, the next key would be the notebook's. */
export function refill(element, ...children) {
  const active = document.activeElement, hadFocus = active !== element && element.contains(active);
  element.replaceChildren();
  put(element, null, children);
  if (hadFocus) (element.contains(active) ? active : keyed(element, active.dataset.key) || homeOf(element))?.focus({ preventScroll: true });
  return element;
}

/** Gives an element other children; the place in it and the focus stay, by the keys of what has it. */
export function redraw(element, ...children) {
  const active = element.contains(document.activeElement) ? document.activeElement : null, where = element.scrollTop;
  const key = active && active.dataset.key, row = active && active.closest("tr[data-key]"), rowKey = row && row.dataset.key;
  refill(element, ...children);
  element.scrollTop = where;
  if (!active) return;
  (keyed(element, key) || keyed(element, rowKey))?.focus();
}

/** Draws parts anew. The focus in one of them stays, by the key of what has it; else `other` says where it goes. */
export function keepFocus(parts, draw, other) {
  const active = document.activeElement, part = parts.find((each) => each.contains(active));
  draw();
  const now = document.activeElement;
  if (!part || (now === active && now !== part) || ![document.body, part, homeOf(part)].includes(now)) return;
  const same = active === part ? null : active.isConnected ? active : keyed(part, active.dataset.key);
  (same || other())?.focus();
}

const ICONS = {
  log: "M3 4h10M3 8h10M3 12h6",
  pk: "M6.5 9.5a3 3 0 1 1 2-2L13 12v1.5h-2V12H9.5z",
  db: "M3 4.5C3 3 13 3 13 4.5v7C13 13 3 13 3 11.5zM3 4.5C3 6 13 6 13 4.5M3 8c0 1.5 10 1.5 10 0",
  menu: "M2.5 4h11M2.5 8h11M2.5 12h11",
  code: "M5.5 5 2.5 8l3 3M10.5 5l3 3-3 3",
  play: "M5 3.5v9l7-4.500z",
  tier: "M8 2.5v7M5.2 7 8 9.800 10.800 7M2.5 12.800h2.200l1.100-1.300h4.400l1.100 1.300h2.200",
  tail: "M3 4h7M3 7h5M3 10h3M11.5 6v6.500M9.300 10.300l2.200 2.200 2.200-2.200",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  copy: "M5.5 5.5h7v7h-7zM3.5 10.5v-7h7",
  cols: "M3 3.5h10v9H3zM7 3.5v9M10 3.5v9",
  x: "M4 4l8 8M12 4l-8 8",
  clock: "M8 2.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11zM8 5v3.200l2 1.300",
  up: "M4 10l4-4 4 4",
  down: "M4 6l4 4 4-4",
  rerun: "M12.5 8a4.5 4.5 0 1 1-1.300-3.200M12.5 2.5v2.800H9.700",
  jobs: "M3 4.500h10v8.500H3zM6 4.500V3h4v1.500M3 8h10",
  health: "M2.500 8.500h2.500l1.500-4 3 7.500 1.500-3.500h2.500",
  warn: "M8 2.5 14 13H2zM8 6.5v3M8 11.200v.1",
};

export const icon = (name) =>
  s("svg", { class: "ic", viewBox: "0 0 16 16", "aria-hidden": "true" }, s("path", { d: ICONS[name] }));

export const button = (label, o = {}) =>
  h(
    "button",
    {
      type: "button", class: `btn ${o.class || ""}`, title: o.title, "aria-label": o.title && !label ? o.title : null,
      onclick: o.on, disabled: o.off, "aria-expanded": o.expanded, "data-key": o.key,
    },
    o.icon ? icon(o.icon) : null,
    label,
  );

/** Moves among items with the arrow keys, Home and End; the new place is given to `go`. */
export function roving(event, count, at, go) {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  const to = event.key === "Home" ? 0 : event.key === "End" ? count - 1 : step ? (at + step + count) % count : null;
  if (to === null) return;
  event.preventDefault();
  event.stopPropagation();
  go(to);
}

/** A list whose rows are one stop of the Tab key: the arrow keys move among them. Without rows they scroll it. */
export function rowList(label) {
  const list = h("div", {
    class: "fx-scroll", tabindex: 0, role: "region", "aria-label": label,
    onfocus: () => (list.querySelector("tr.pick.sel") || list.querySelector("tr.pick"))?.focus(),
    onkeydown: (event) => {
      if (!event.target.matches("tr.pick")) return;
      if (event.key === "Tab" && event.shiftKey) {
        // To what is before the list, not to the list, which would give the focus back.
        list.tabIndex = -1;
        setTimeout(() => (list.tabIndex = 0));
      }
      const all = [...list.querySelectorAll("tr.pick")], at = all.indexOf(event.target), step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      const to = event.key === "Home" ? 0 : event.key === "End" ? all.length - 1 : step ? at + step : at;
      if (to === at || !all[to]) return;
      event.preventDefault();
      event.stopPropagation();
      all[to].focus();
    },
  });
  return list;
}

export function segmented(label, options, value, on, kind = "") {
  const choose = (next) => {
    if (next === value) return;
    value = next;
    for (const each of element.children) {
      const chosen = each.dataset.value === next;
      each.setAttribute("aria-checked", String(chosen));
      each.tabIndex = chosen ? 0 : -1;
    }
    on(next);
  };
  const element = h(
    "div",
    { class: `seg ${kind}`, role: "radiogroup", "aria-label": label },
    options.map(([key, text], at) =>
      h(
        "button",
        {
          type: "button", role: "radio", "aria-checked": String(key === value), tabindex: key === value ? 0 : -1,
          "data-value": key, onclick: () => choose(key),
          onkeydown: (event) => roving(event, options.length, at, (to) => {
            choose(options[to][0]);
            element.children[to].focus();
          }),
        },
        text,
      ),
    ),
  );
  return element;
}

export const field = (o) =>
  h("input", {
    class: `inp ${o.class || ""}`, type: o.type || "text", value: o.value ?? "", placeholder: o.placeholder,
    "aria-label": o.label, style: o.style, oninput: o.oninput, onchange: o.onchange, onkeydown: o.onkeydown,
    spellcheck: "false", autocomplete: "off", min: o.min, max: o.max, step: o.step, "data-key": o.key,
  });

export const dot = (kind, label) =>
  h("span", { class: `dot ${kind}`, role: label ? "img" : null, "aria-label": label || null, "aria-hidden": label ? null : "true" });
export const stateMark = (kind, text) => h("span", { class: "st" }, dot(kind, ""), text);
export const sourceMark = (where) => h("span", { class: `fx-src ${where}` }, h("i", { class: `key k-${where}` }), where);
export const pairs = (rows) =>
  h("dl", { class: "kv" }, rows.map(([key, value, kind]) => [h("dt", null, key), h("dd", { class: kind }, value)]));
export const clipped = (text, kind = "") => h("span", { class: `cut ${kind}`, title: text }, text);
export const skeleton = (width) => h("span", { class: "sk", style: { width } });
/** A cell's text, or what stands for none. */
export const shownValue = (text) =>
  text == null ? h("i", { class: "nul" }, "null") : text === "" ? h("i", { class: "nul" }, "empty") : text;
