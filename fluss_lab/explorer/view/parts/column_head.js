// The head of a column: name, type, share of nulls, and how its values are spread.

import { h, s } from "./dom.js";
import { number, percent } from "./figures.js";

const BAR_PX = 14;

function bars({ counts, lo, hi, conditions }, width, add) {
  const most = Math.max(...counts), bar = width / counts.length;
  return s("svg", { width, height: BAR_PX, class: "hh", "aria-hidden": "true" }, counts.map((count, at) => {
    const height = count ? Math.max(1, (count / most) * BAR_PX) : 0;
    return [
      s("rect", { x: at * bar, y: BAR_PX - height, width: Math.max(1, bar - 1), height, fill: "var(--fx-line-2)" }),
      s("rect", { x: at * bar, y: 0, width: bar, height: BAR_PX, fill: "transparent", onclick: (event) => add(event, conditions[at]) },
        s("title", null, `${conditions[at]}: ${number(count)} of the sample, which goes from ${lo} to ${hi}`)),
    ];
  }));
}

function shares(values, width, add) {
  let x = 0;
  return s("svg", { width, height: BAR_PX, class: "hh", "aria-hidden": "true" }, values.map(([text, share, condition], at) => {
    const wide = share * width;
    const rect = s("rect", { x, y: BAR_PX / 2 - 1, width: Math.max(0.6, wide - 1), height: BAR_PX / 2, fill: at % 2 ? "var(--fx-line)" : "var(--fx-line-2)", onclick: condition ? (event) => add(event, condition) : null },
      s("title", null, `${text === "" ? "empty" : text} · ${(share * 100).toFixed(1)} %`));
    x += wide;
    return rect;
  }));
}

/** What is said of a column's facts to those who do not see the picture. */
function described(facts) {
  if (!facts) return "";
  const of = facts.sampled ? `in a sample of ${number(facts.rows)} rows` : "";
  const spread = facts.bins ? `, ${facts.bins.lo} to ${facts.bins.hi}` : facts.values ? `, ${facts.values.slice(0, 3).map(([text]) => text).join(", ")}` : facts.distinct ? `, ${number(facts.distinct)} distinct` : "";
  return `${percent(facts.nulls) || "no nulls"}${spread} ${of}`;
}

export function columnHead(column, facts, add) {
  const click = (event, condition) => {
    event.stopPropagation();
    add(condition);
  };
  const width = column.width - 16;
  const nulls = h("span", null, facts ? percent(facts.nulls) : ""), type = h("span", { class: "cut" }, column.type);
  const picture = !facts ? null : facts.bins ? bars(facts.bins, width, click) : facts.values ? shares(facts.values, width, click)
    : facts.distinct ? h("div", { class: `xs mut cut fx-distinct${column.isNumber ? " num" : ""}` }, `${facts.sampled ? "≥ " : ""}${number(facts.distinct)} distinct`) : null;
  return h(
    "div", { class: "fx-gc", title: [column.name, column.type, column.comment, described(facts)].filter(Boolean).join(" · ") },
    h("div", { class: `n cut${column.isNumber ? " num" : ""}` }, column.name),
    h("div", { class: "y" }, column.isNumber ? [nulls, type] : [type, nulls]), picture,
    facts ? h("span", { class: "vh" }, described(facts)) : null,
  );
}
