// The section with the graph: its tools, the search, the legend, and the panel of details.

import type { Plan } from "./data";
import { details } from "./details";
import { button, element, section } from "./dom";
import { GraphView, type Colouring } from "./graph";
import type { Item } from "./levels";
import { search } from "./search";
import * as theme from "./theme";

/** How many results are listed. */
const MOST = 30;

export interface Network {
  host: HTMLElement;
  graph: GraphView;
  go: (item: Item | undefined) => void;
  start: () => void;
}

export function network(plan: Plan): Network {
  const panel = element("aside", { class: "panel", "aria-live": "polite", "aria-label": "Details" });
  const status = element("p", { class: "status", role: "status" });
  const refused = (text: string): void => {
    status.textContent = text;
  };
  const graph = new GraphView(plan, (item) => show(item), refused);
  const go = (item: Item | undefined): void => {
    if (item !== undefined) graph.reveal(item);
  };
  const toggle = (item: Item): void => graph.toggle(item);

  function show(item: Item | null): void {
    status.textContent = "";
    panel.replaceChildren(
      item === null
        ? element("p", { class: "faint" }, hint(plan))
        : details(plan, graph.levels, item, go, toggle),
    );
  }

  const legend = element("ul", { class: "legend" });
  const paintLegend = (colouring: Colouring): void => {
    const entries: [string, string][] =
      colouring === "backend"
        ? [...graph.legend]
        : colouring === "precision"
          ? ["float32", "bf16", "int8"].map((name): [string, string] => [name, theme.precisionColour(name)])
          : [["little time", theme.heatColour(0)], ["", theme.heatColour(0.5)], ["much time", theme.heatColour(1)]];
    legend.replaceChildren(
      ...entries.map(([name, colour]) => {
        const key = element("span", { class: "key" });
        key.style.background = colour;
        return element("li", {}, key, name);
      }),
    );
  };
  const colouring = element("select", { "aria-label": "Colour by" });
  for (const name of ["backend", "precision", "time"]) colouring.append(element("option", { value: name }, `by ${name}`));
  colouring.addEventListener("change", () => {
    graph.colourBy(colouring.value as Colouring);
    paintLegend(colouring.value as Colouring);
  });
  paintLegend("backend");

  const tools = element("div", { class: "tools" }, searchBox(plan, graph, go), colouring);
  if (graph.levels.repeats.length > 0) {
    const fold = element("input", { type: "checkbox", id: "fold" });
    fold.checked = !graph.levels.repeats.some((item) => graph.levels.opened.has(item));
    fold.addEventListener("change", () => graph.foldRepeats(fold.checked));
    tools.append(element("label", { for: "fold" }, fold, " fold repeated blocks"));
  }
  tools.append(
    button("+", () => graph.zoom(1.25), { "aria-label": "Zoom in" }),
    button("−", () => graph.zoom(0.8), { "aria-label": "Zoom out" }),
    button("Show all", () => graph.fit()),
  );
  show(null);
  const host = section(
    "The network",
    "network",
    tools,
    legend,
    status,
    element("div", { class: "split" }, graph.host, panel),
  );
  const start = (): void => {
    graph.start();
    new ResizeObserver(() => graph.resized()).observe(graph.host);
  };
  return { host, graph, go, start };
}

function hint(plan: Plan): string {
  const considered =
    plan.candidates === null
      ? ""
      : ` ${plan.candidates.found.toLocaleString("en")} candidates were found; the cost of ${plan.candidates.asked.toLocaleString("en")} was asked for.`;
  return (
    "Select a node to see its shapes, its cost and what else could have run it. A double click, or Enter, opens and " +
    `closes a group. Arrow keys follow the edges.${considered}`
  );
}

function searchBox(plan: Plan, graph: GraphView, go: (item: Item | undefined) => void): HTMLElement {
  const input = element("input", { type: "search", placeholder: "Search operators", "aria-label": "Search operators and partitions" });
  const list = element("ul", { class: "results", "aria-label": "Results" });
  const count = element("span", { class: "faint", role: "status" });
  let found = search(plan, graph.levels, "");
  let at = -1;
  const taken = (item: Item): void => {
    list.replaceChildren();
    go(item);
  };
  input.addEventListener("input", () => {
    found = search(plan, graph.levels, input.value);
    at = -1;
    graph.mark(new Set(found.map(({ item }) => item)));
    count.textContent = input.value.trim() === "" ? "" : `${found.length} found`;
    list.replaceChildren(...found.slice(0, MOST).map(({ item, text }) => element("li", {}, button(text, () => taken(item), { class: "link" }))));
    if (found.length > MOST) list.append(element("li", { class: "faint" }, `and ${found.length - MOST} more`));
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      input.value = "";
      input.dispatchEvent(new Event("input"));
    }
    if (event.key !== "Enter" || found.length === 0) return;
    at = (at + (event.shiftKey ? found.length - 1 : 1)) % found.length;
    go(found[at]?.item);
  });
  return element("div", { class: "search" }, input, count, list);
}
