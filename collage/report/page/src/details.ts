// The panel beside the graph: all that is known of what is selected, and why it is where it is.

import { HOST, type Candidate, type Partition, type Plan } from "./data";
import { button, element, facts, table } from "./dom";
import { backendsOf, bytes, milliseconds, percent, title, totalMs } from "./labels";
import type { Item, Levels } from "./levels";

type Go = (item: Item | undefined) => void;

/** How many operators of a partition are listed. */
const MOST = 120;

export function details(plan: Plan, levels: Levels, item: Item, go: Go, toggle: (item: Item) => void): HTMLElement {
  const made = element("div");
  made.append(element("h3", {}, heading(plan, item)));
  const buttons = element("p", { class: "buttons" });
  if (levels.canOpen(item)) {
    buttons.append(button(levels.opened.has(item) ? "Close" : `Open (${item.members.length})`, () => toggle(item), { class: "toggle" }));
  }
  if (item.parent !== null) buttons.append(button("Up", () => go(item.parent ?? undefined)));
  if (buttons.childElementCount > 0) made.append(buttons);
  if (item.kind === "operator") operator(plan, levels, item, go, made);
  else if (item.kind === "partition") partition(plan, levels, item.partition, go, made);
  else group(plan, item, made);
  return made;
}

function heading(plan: Plan, item: Item): string {
  if (item.kind === "operator") return `${title(plan, item)} (operator ${item.node})`;
  if (item.kind === "partition") return `Partition ${item.partition + 1}: ${title(plan, item)}`;
  return title(plan, item);
}

function group(plan: Plan, item: Item, into: HTMLElement): void {
  const pairs: [string, string][] = [["operators", String(item.operators)]];
  if (item.partitions.length > 0) pairs.push(["partitions", String(item.partitions.length)], ["on", backendsOf(plan, item)]);
  if (item.ms > 0) pairs.push(["sum of costs", `${milliseconds(item.ms)}, ${percent(item.ms / totalMs(plan))} of the plan`]);
  into.append(facts(pairs));
}

function partition(plan: Plan, levels: Levels, number: number, go: Go, into: HTMLElement): void {
  const part = plan.partitions[number];
  if (part === undefined) return;
  into.append(element("p", { class: "why" }, part.why));
  const pairs: [string, string][] = [["operators", counted(part)]];
  if (part.backend !== HOST) {
    pairs.push(["precision", part.precision], ["cost", part.cost]);
    if (part.share !== null) pairs.push(["share of all costs", percent(part.share)]);
    if (part.inside !== null) pairs.push(["inside the whole", milliseconds(part.inside)]);
    pairs.push(["runner-up", part.runnerUp === "" ? "none" : `${part.runnerUp}, ${part.runnerUpCost}: ${part.margin}`]);
  }
  into.append(facts(pairs));
  borders(levels, part, go, into);
  into.append(element("h4", {}, "Operators"));
  const list = element("ul", { class: "plain" });
  for (const node of part.nodes.slice(0, MOST)) list.append(element("li", {}, nodeButton(plan, levels, node, go)));
  if (part.nodes.length > MOST) list.append(element("li", {}, `and ${part.nodes.length - MOST} more`));
  into.append(list);
  candidates(plan, number, null, into);
}

/** How many operators, and which; a long label says how many itself. */
function counted(part: Partition): string {
  const own = `${part.nodes.length} operators: `;
  return part.label.startsWith(own) || part.nodes.length === 1 ? part.label.replace(own, `${part.nodes.length}: `) : `${part.nodes.length}: ${part.label}`;
}

function borders(levels: Levels, part: Partition, go: Go, into: HTMLElement): void {
  if (part.borders.length === 0) return;
  const rows = part.borders.map((border) => [
    button(`${border.producer + 1}: ${border.backend}`, () => go(levels.partition(border.producer)), { class: "link" }),
    bytes(border.bytes),
    border.ms === null ? "not charged" : milliseconds(border.ms),
  ]);
  into.append(element("h4", {}, "Transitions into it"), table(["from partition", "tensors", "charged"], rows, [1, 2]));
}

function operator(plan: Plan, levels: Levels, item: Item, go: Go, into: HTMLElement): void {
  const [, inputs, type, name, attributes] = plan.nodes[item.node]!;
  const pairs: [string, string | HTMLElement | HTMLElement[]][] = [];
  if (name !== "") pairs.push(["name", name]);
  if (type !== "") pairs.push(["result", type]);
  const part = plan.partitions[item.partition];
  if (part !== undefined) {
    const text = `${item.partition + 1}: ${part.backend === HOST ? "virtual machine" : part.backend}, ${part.cost}`;
    pairs.push(["partition", button(text, () => go(levels.partition(item.partition)), { class: "link" })]);
  }
  pairs.push(["reads", inputs.map((read) => element("div", {}, nodeButton(plan, levels, read, go)))]);
  const readers = plan.nodes.flatMap((node, i) => (node[1].includes(item.node) ? [i] : []));
  if (readers.length > 0) {
    pairs.push(["read by", readers.slice(0, 12).map((reader) => element("div", {}, nodeButton(plan, levels, reader, go)))]);
  }
  into.append(facts(pairs));
  const own = attributes < 0 ? undefined : plan.attributes[attributes];
  if (own !== undefined) {
    const rows = Object.entries(own).map(([key, value]) => [key, typeof value === "string" ? value : JSON.stringify(value)]);
    into.append(element("h4", {}, "Attributes"), table(["attribute", "value"], rows));
  }
  if (part !== undefined) candidates(plan, item.partition, item.node, into);
}

/** A button to a node; constants are not drawn, and only named. */
function nodeButton(plan: Plan, levels: Levels, node: number, go: Go): HTMLElement {
  const [op, , type, name] = plan.nodes[node] ?? ["?", [], "", "", -1];
  const text = `${op} ${type}${name !== "" && op === "input" ? ` ${name}` : ""}`;
  const item = levels.operator(node);
  return item === undefined ? element("span", {}, text) : button(text, () => go(item), { class: "link" });
}

/** The candidates beside a partition, or those of them that contain a node. */
function candidates(plan: Plan, number: number, node: number | null, into: HTMLElement): void {
  const all = plan.candidates;
  const part = plan.partitions[number];
  if (all === null || part === undefined || part.backend === HOST) return;
  const like = all.alike[number] ?? number;
  const first = plan.partitions[like];
  if (first === undefined) return;
  // Equal partitions share the candidates of the first one: nodes go by their place inside.
  const wanted = node === null ? null : first.nodes[part.nodes.indexOf(node)];
  const listed = all.listed.filter((found) => found[0] === like && (wanted == null || found[2].includes(wanted)));
  const own = new Set(first.nodes);
  const isSame = (found: Candidate): boolean => found[2].length === own.size && found[2].every((inside) => own.has(inside));
  const rows = (group: Candidate[]) =>
    group.map((found) => {
      const chosen = isSame(found) && found[1] === part.backend;
      const operators = found[2].map((inside) => plan.nodes[inside]?.[0] ?? "?");
      const text = operators.length > 6 ? `${operators.slice(0, 5).join("+")}+${operators.length - 5} more` : operators.join("+");
      return [
        element("span", chosen ? { class: "chosen" } : {}, `${found[1]}${chosen ? " (chosen)" : ""}`),
        text,
        found[5],
        [found[3], found[7] === "" ? null : `: ${found[7]}`, found[6] === "" ? null : element("div", { class: "faint" }, `expected ${found[6]} ms`)],
      ];
    });
  const columns = ["backend", "operators", "ms", "how it is known"];
  const [same, others] = [listed.filter(isSame), listed.filter((found) => !isSame(found))];
  if (same.length > 0) into.append(element("h4", {}, "Candidates on the same operators"), table(columns, rows(same), [2]));
  if (others.length > 0) {
    const what = node === null ? "Candidates that share operators" : "Other candidates that contain it";
    into.append(element("h4", {}, what), table(columns, rows(others), [2]));
  }
  const more = all.more[like] ?? 0;
  const shared = like === number ? "" : ` As of partition ${like + 1}, which is like it.`;
  const hidden = more > 0 ? `${more} more that share operators with the partition are not listed.` : "";
  if (hidden + shared !== "") into.append(element("p", { class: "faint" }, `${hidden}${shared}`.trim()));
}
