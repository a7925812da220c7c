// What items are called.

import { HOST, type Plan } from "./data";
import type { Item } from "./levels";

export function milliseconds(ms: number): string {
  return `${Number(ms.toPrecision(4))} ms`;
}

export function bytes(count: number): string {
  const units = ["B", "KiB", "MiB", "GiB"];
  let [value, unit] = [count, 0];
  while (value >= 1024 && unit < units.length - 1) [value, unit] = [value / 1024, unit + 1];
  return `${Number(value.toPrecision(3))} ${units[unit]}`;
}

export function percent(share: number): string {
  return `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)}%`;
}

export function totalMs(plan: Plan): number {
  return plan.partitions.reduce((sum, part) => sum + (part.ms ?? 0), 0);
}

/** `onednn ×8, tvm ×5` of the partitions inside, without the host's. */
export function backendsOf(plan: Plan, item: Item): string {
  const counts = new Map<string, number>();
  for (const number of item.partitions) {
    const name = plan.partitions[number]?.backend ?? HOST;
    if (name !== HOST) counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  const sorted = [...counts].sort((a, b) => b[1] - a[1]);
  return sorted.map(([name, count]) => (counts.size > 1 && count > 1 ? `${name} ×${count}` : name)).join(", ");
}

/** A line, or two or three, for a node of the graph. */
export function label(plan: Plan, item: Item): string {
  if (item.kind === "operator") {
    const [op, , type] = plan.nodes[item.node]!;
    return type === "" ? op : `${op}\n${shortened(type, 30)}`;
  }
  const time = item.ms > 0 ? `${milliseconds(item.ms)}, ${percent(item.ms / (totalMs(plan) || 1))}` : "";
  return [title(plan, item), subtitle(plan, item), time].filter((line) => line !== "").join("\n");
}

export function title(plan: Plan, item: Item): string {
  const part = plan.partitions[item.partition];
  switch (item.kind) {
    case "operator":
      return plan.nodes[item.node]![0];
    case "partition": {
      if (part === undefined) return "partition";
      const precision = part.precision === "float32" || part.backend.endsWith(part.precision) ? "" : ` ${part.precision}`;
      return part.backend === HOST ? "virtual machine" : `${part.backend}${precision}`;
    }
    case "repeat":
      return `repeated ${item.times} times`;
    case "block":
      return "block";
    case "piece":
      return "piece";
  }
}

function subtitle(plan: Plan, item: Item): string {
  if (item.kind === "partition") return shortened(plan.partitions[item.partition]?.label ?? "", 34);
  if (item.partitions.length === 0) return `${item.operators} operators`;
  const count = item.partitions.filter((number) => plan.partitions[number]?.backend !== HOST).length;
  if (count === 0) return "virtual machine";
  return `${count} partition${count === 1 ? "" : "s"} on\n${shortened(backendsOf(plan, item), 34)}`;
}

export function shortened(text: string, most: number): string {
  return text.length <= most ? text : `${text.slice(0, most - 1)}…`;
}
