// The detail of a row: where its record lives, and all its values.

import { button, h, pairs, shownValue, sourceMark } from "./dom.js";
import { number } from "./figures.js";

const known = (key, value, kind) => (value == null ? [] : [[key, value, kind]]);

export function rowDetail(answer, showChanges) {
  const { place } = answer;
  const facts = [
    ["source", sourceMark(place.source)], ...known("partition", answer.partition), ["bucket", String(answer.bucket)], ["offset", number(answer.offset)], ...known("timestamp", answer.timestamp),
    ...known("file", place.file, "mono"), ...known("content", place.content === "data" ? null : place.content),
    ...known("position", place.position == null ? null : `row ${number(place.position)} of the file`), ...known("snapshot", place.snapshot_id, "mono"),
    ...known("server", place.server == null ? null : `${place.server}, ${place.local ? "on its disk" : "in remote storage"}`), ...known("segment", place.segment, "mono"),
    ...known("batch", place.byte == null ? null : `at byte ${number(place.byte)} of the segment`), ...known("place", place.unknown == null ? null : `not known: ${place.unknown}`),
  ];
  const values = answer.values.map(([name, text, isCut]) => [name, [shownValue(text), isCut ? h("span", { class: "mut" }, "… cut") : null]]);
  return h("div", { class: "two" }, h("div", null, pairs(facts), button("Show in changelog", { class: "sm", on: showChanges })), h("div", null, h("h3", null, "Values"), pairs(values)));
}
