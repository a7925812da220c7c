// Sections of texts, charts and tables, as collage/report/sections.py describes them.

import type { Section } from "./data";
import { element, fold, section, table } from "./dom";
import { plot } from "./plots";

export function sectionOf(found: Section): HTMLElement {
  const tables = found.tables.map((given) => {
    const made = table(given.columns, given.rows, given.numbers, given.fold);
    return given.fold === "" ? made : fold(given.fold, made);
  });
  const text = found.text.map((line) => element("p", {}, line));
  return section(found.title, found.id, ...text, ...found.charts.map(plot), ...tables);
}
