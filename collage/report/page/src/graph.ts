// The graph: Cytoscape draws what the levels of detail show.

import cytoscape, { type Core, type ElementDefinition, type NodeSingular } from "cytoscape";
import { HOST, type Plan } from "./data";
import { element } from "./dom";
import { label } from "./labels";
import { placed, type Size } from "./layout";
import { Levels, type Item } from "./levels";
import * as theme from "./theme";

export type Colouring = "backend" | "precision" | "time";

/** Backends differ in shape, too, and precisions in the line around. */
const SHAPES = ["round-rectangle", "rectangle", "cut-rectangle", "barrel", "bottom-round-rectangle", "round-cut-rectangle"];
const LINES: Record<string, string> = { bf16: "dashed", int8: "double" };

export class GraphView {
  readonly levels: Levels;
  readonly host = element("div", {
    class: "canvas",
    tabindex: "0",
    role: "application",
    "aria-label": "The network: arrow keys move, Enter opens and closes, plus and minus zoom, 0 shows all",
  });
  selected: Item | null = null;
  private cy!: Core;
  private readonly colours: Map<string, string>;
  private readonly shapes: Map<string, string>;
  private readonly hottest: number;
  private colouring: Colouring = "backend";

  constructor(
    readonly plan: Plan,
    private readonly onSelect: (item: Item | null) => void,
    private readonly onRefused: (text: string) => void,
  ) {
    const names = plan.partitions.map((part) => part.backend).filter((name) => name !== HOST);
    this.colours = theme.backendColours(names);
    this.shapes = new Map([...this.colours.keys()].map((name, i) => [name, SHAPES[i % SHAPES.length]!]));
    this.hottest = Math.max(...plan.partitions.map((part) => part.ms ?? 0), 1e-12);
    this.levels = new Levels(plan);
    // Where the canvas stands is remembered until something scrolls; what unfolds above moves it, too.
    this.host.addEventListener("pointerdown", () => this.cy.resize(), { capture: true });
    this.host.addEventListener("keydown", (event) => this.key(event));
  }

  /** To be called when the host is on the page: Cytoscape watches what it is inside of for scrolling. */
  start(): void {
    this.cy = cytoscape({ container: this.host, layout: { name: "preset" }, minZoom: 0.02, maxZoom: 3, autoungrabify: true, boxSelectionEnabled: false });
    this.cy.on("tap", (event) => {
      if (event.target === this.cy) this.select(null);
    });
    this.cy.on("tap", "node", (event) => this.select(this.itemOf(event.target)));
    this.cy.on("dbltap", "node", (event) => this.toggle(this.itemOf(event.target)));
    this.draw();
    this.showStart();
  }

  /** For the legend: backends with their colours. */
  get legend(): Map<string, string> {
    return this.colours;
  }

  colourBy(colouring: Colouring): void {
    this.colouring = colouring;
    this.restyle();
  }

  restyle(): void {
    this.cy.nodes().forEach((node) => {
      node.data(this.looks(this.itemOf(node)));
    });
    this.cy.style(this.style());
  }

  toggle(item: Item): void {
    if (this.levels.opened.has(item)) this.levels.close(item);
    else if (!this.levels.open(item)) {
      if (this.levels.canOpen(item)) this.onRefused("Too much would be drawn: close other groups first.");
      return;
    }
    this.draw(item);
    this.select(item);
  }

  foldRepeats(folded: boolean): void {
    for (const item of this.levels.repeats) {
      if (folded) this.levels.close(item);
      else if (this.levels.open(item)) item.members.forEach((block) => block.kind === "block" && this.levels.open(block));
    }
    this.draw();
    this.showStart();
  }

  /** Select an item, open what it is inside of, and move there. */
  reveal(item: Item): void {
    this.levels.reveal(item);
    this.draw();
    this.select(item);
    this.moveTo(item);
  }

  select(item: Item | null): void {
    this.selected = item;
    this.cy.elements().removeClass("selected near");
    if (item !== null) {
      const node = this.cy.getElementById(String(this.levels.shown(item).id));
      node.addClass("selected");
      node.connectedEdges().addClass("near");
    }
    this.onSelect(item);
  }

  mark(items: Set<Item>): void {
    const shown = new Set([...items].map((item) => this.levels.shown(item)));
    this.cy.nodes().forEach((node) => {
      node.toggleClass("found", shown.has(this.itemOf(node)));
    });
  }

  fit(): void {
    this.cy.fit(undefined, 24);
  }

  zoom(factor: number): void {
    this.cy.zoom({ level: this.cy.zoom() * factor, renderedPosition: { x: this.cy.width() / 2, y: this.cy.height() / 2 } });
  }

  resized(): void {
    this.cy.resize();
  }

  /** How many nodes are drawn, open groups included. */
  get drawn(): number {
    return this.cy.nodes().length;
  }

  /** Where an item is drawn, in pixels of the host; null where it is not. */
  position(item: Item): { x: number; y: number } | null {
    const node = this.cy.getElementById(String(item.id));
    return node.empty() ? null : { ...(node as NodeSingular).renderedPosition() };
  }

  private itemOf(node: NodeSingular): Item {
    return this.levels.item(Number(node.id()))!;
  }

  private draw(kept: Item | null = null): void {
    const before = kept === null ? null : this.position(kept);
    const view = this.levels.view();
    const places = placed(view, (item) => this.size(item));
    const elements: ElementDefinition[] = [];
    for (const item of [...view.open, ...view.drawn]) {
      const { width, height } = this.size(item);
      const data: Record<string, unknown> = { id: String(item.id), width, height, ...this.looks(item) };
      if (item.parent !== null && this.levels.opened.has(item.parent)) data["parent"] = String(item.parent.id);
      const place = places.get(item);
      elements.push(place === undefined ? { data, classes: "open" } : { data, position: { ...place } });
    }
    for (const { source, target, count } of view.edges) {
      const id = `${source.id}-${target.id}`;
      elements.push({ data: { id, source: String(source.id), target: String(target.id), count } });
    }
    this.cy.batch(() => {
      this.cy.elements().remove();
      this.cy.add(elements);
    });
    this.cy.style(this.style());
    const after = kept === null ? null : this.position(kept);
    if (before !== null && after !== null) this.cy.panBy({ x: before.x - after.x, y: before.y - after.y });
  }

  private size(item: Item): Size {
    const lines = label(this.plan, item).split("\n");
    const longest = Math.max(...lines.map((line) => line.length));
    return { width: Math.max(64, 7.2 * longest + 22), height: 17 * lines.length + 16 };
  }

  private looks(item: Item): Record<string, string | number> {
    const part = this.plan.partitions[item.partition];
    const names = [...new Set(item.partitions.map((number) => this.plan.partitions[number]!.backend))];
    const real = names.filter((name) => name !== HOST);
    const backend = part !== undefined ? part.backend : real.length === 1 ? real[0]! : "";
    const fill = this.fill(item, backend);
    const open = this.levels.opened.has(item);
    return {
      label: open ? label(this.plan, item).replaceAll("\n", "  ") : label(this.plan, item),
      fill,
      ink: open ? theme.ink() : theme.inkOn(fill),
      shape: this.shapes.get(backend) ?? (item.partitions.length > 1 ? "round-rectangle" : "ellipse"),
      line: LINES[part?.precision ?? ""] ?? "solid",
      stacked: item.kind === "repeat" ? 1 : 0,
    };
  }

  private fill(item: Item, backend: string): string {
    if (this.colouring === "time") {
      const ms = item.kind === "operator" ? (this.plan.partitions[item.partition]?.ms ?? 0) : item.ms;
      return theme.heatColour(Math.sqrt(Math.min(1, ms / this.hottest)));
    }
    if (this.colouring === "precision" && backend !== "" && backend !== HOST) {
      const found = new Set(item.partitions.map((number) => this.plan.partitions[number]!.precision));
      const own = this.plan.partitions[item.partition]?.precision;
      return theme.precisionColour(own ?? (found.size === 1 ? [...found][0]! : ""));
    }
    return this.colours.get(backend) ?? theme.NEUTRAL;
  }

  private style(): cytoscape.StylesheetJson {
    const [ink, paper] = [theme.ink(), theme.paper()];
    const accent = theme.isDark() ? "#ffffff" : "#000000";
    return [
      {
        selector: "node",
        style: {
          label: "data(label)",
          width: "data(width)",
          height: "data(height)",
          shape: "data(shape)" as "rectangle",
          "background-color": "data(fill)",
          color: "data(ink)",
          "border-color": ink,
          "border-width": 1,
          "border-style": "data(line)" as "solid",
          "font-family": "system-ui, sans-serif",
          "font-size": 12,
          "line-height": 1.25,
          "text-wrap": "wrap",
          "text-max-width": "400px",
          "text-valign": "center",
          "text-halign": "center",
          "min-zoomed-font-size": 5,
        },
      },
      { selector: "node[line = 'double']", style: { "border-width": 5 } },
      { selector: "node[line = 'dashed']", style: { "border-width": 3 } },
      { selector: "node[stacked = 1]", style: { ghost: "yes", "ghost-offset-x": 6, "ghost-offset-y": 6, "ghost-opacity": 0.5 } },
      {
        selector: "node.open",
        style: {
          shape: "round-rectangle",
          "background-opacity": 0.14,
          "text-valign": "top",
          "text-wrap": "none",
          "text-margin-y": -4,
          "text-background-color": paper,
          "text-background-opacity": 0.85,
          "text-background-padding": "2px",
          padding: "12px",
        },
      },
      {
        selector: "edge",
        style: {
          width: 1.4,
          "line-color": theme.NEUTRAL,
          "target-arrow-color": theme.NEUTRAL,
          "target-arrow-shape": "triangle",
          "arrow-scale": 0.8,
          "curve-style": "bezier",
        },
      },
      { selector: "edge.near", style: { width: 3, "line-color": ink, "target-arrow-color": ink } },
      { selector: "node.found", style: { "border-width": 4, "border-color": "#d55e00" } },
      {
        selector: "node.selected",
        style: { "border-width": 4, "border-color": accent, "outline-width": 3, "outline-color": paper, "underlay-color": accent, "underlay-opacity": 0.35, "underlay-padding": 8 },
      },
      // What is inside of an open group stays readable: only its border shows that it is selected.
      { selector: "node.open.selected", style: { "underlay-opacity": 0, "outline-width": 0, "border-width": 4, "background-opacity": 0.22 } },
    ] as cytoscape.StylesheetJson;
  }

  /** All of it where that can be read, else its beginning. */
  private showStart(): void {
    this.fit();
    if (this.cy.zoom() > 1) this.cy.zoom(1);
    this.cy.center();
    if (this.cy.zoom() >= 0.55) return;
    this.cy.zoom(0.7);
    const box = this.cy.elements().boundingBox();
    const first = this.cy.nodes().not(".open").min((node) => (node as NodeSingular).position("y")).ele as NodeSingular;
    const middle = first.empty() ? (box.x1 + box.x2) / 2 : first.position("x");
    this.cy.pan({ x: this.cy.width() / 2 - 0.7 * middle, y: 24 - 0.7 * box.y1 });
  }

  private moveTo(item: Item): void {
    const node = this.cy.getElementById(String(this.levels.shown(item).id));
    if (node.empty()) return;
    if (this.cy.zoom() < 0.6) this.cy.zoom(0.9);
    this.cy.center(node);
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const steps: Record<string, () => void> = {
      ArrowDown: () => this.step("outgoers"),
      ArrowUp: () => this.step("incomers"),
      ArrowRight: () => this.next(1),
      ArrowLeft: () => this.next(-1),
      Enter: () => this.selected !== null && this.toggle(this.selected),
      " ": () => this.selected !== null && this.toggle(this.selected),
      Escape: () => this.leave(),
      "+": () => this.zoom(1.25),
      "=": () => this.zoom(1.25),
      "-": () => this.zoom(0.8),
      "0": () => this.fit(),
    };
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    step();
  }

  private go(item: Item | undefined): void {
    if (item === undefined) return;
    this.select(item);
    this.moveTo(item);
  }

  private step(along: "outgoers" | "incomers"): void {
    if (this.selected === null) return this.next(1);
    const node = this.cy.getElementById(String(this.selected.id));
    const reached = node[along]("node");
    if (reached.nonempty()) this.go(this.itemOf(reached[0] as NodeSingular));
  }

  private next(by: number): void {
    const drawn = this.levels.view().drawn;
    const at = this.selected === null ? -1 : drawn.indexOf(this.selected);
    this.go(drawn[Math.min(drawn.length - 1, Math.max(0, at + by))]);
  }

  /** To the group that the selected item is inside of; from there, out. */
  private leave(): void {
    const above = this.selected?.parent ?? null;
    if (above === null) this.select(null);
    else this.go(above);
  }
}
