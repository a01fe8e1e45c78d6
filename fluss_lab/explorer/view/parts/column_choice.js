// The list of a table's columns, to choose those that are shown.

import { button, field, h } from "./dom.js";

/** `choose` gets the names of those hidden, `close` is called when nothing was chosen. */
export function columnChoice(columns, hidden, choose, close) {
  const boxes = columns.map((column) => {
    const box = h("input", { type: "checkbox", "data-name": column.name });
    box.checked = !hidden.has(column.name);
    return h("label", null, box, h("span", { class: "cut" }, column.name), h("span", { class: "r mut xs" }, column.type));
  });
  // One column at least: a grid without any shows nothing of its rows.
  const apply = button("Apply", { class: "sm pri", on: () => choose(boxes.map((label) => label.firstChild).filter((box) => !box.checked).map((box) => box.dataset.name)) });
  const find = (text) => {
    for (const label of boxes) label.hidden = !label.textContent.toLowerCase().includes(text.toLowerCase());
  };
  return h(
    "div", { class: "pop", role: "dialog", "aria-label": "Columns", onkeydown: (event) => event.key === "Escape" && (event.stopPropagation(), close()) },
    field({ placeholder: "Find a column", label: "Find a column", class: "sm wide", oninput: (event) => find(event.target.value) }),
    h("div", { class: "popl", onchange: () => (apply.disabled = !boxes.some((label) => label.firstChild.checked)) }, boxes),
    h("div", { class: "popf" },
      apply,
      button("All", { class: "sm", on: () => choose([]) })),
  );
}
