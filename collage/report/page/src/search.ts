// Search over operators and partitions: by operator, name, type, backend, or number.

import { HOST, type Plan } from "./data";
import type { Item, Levels } from "./levels";

export interface Found {
  item: Item;
  text: string;
}

/** Those whose text has all words; partitions first. */
export function search(plan: Plan, levels: Levels, query: string): Found[] {
  const words = query.toLowerCase().split(/\s+/).filter((word) => word !== "");
  if (words.length === 0) return [];
  const found: Found[] = [];
  const consider = (item: Item | undefined, text: string): void => {
    const lower = text.toLowerCase();
    if (item !== undefined && words.every((word) => lower.includes(word))) found.push({ item, text });
  };
  plan.partitions.forEach((part, number) => {
    const backend = part.backend === HOST ? "virtual machine" : part.backend;
    consider(levels.partition(number), `partition ${number + 1}: ${backend}, ${part.label}`);
  });
  plan.nodes.forEach(([op, , type, name], node) => {
    const item = levels.operator(node);
    const part = item === undefined ? undefined : plan.partitions[item.partition];
    consider(item, `${op} ${name} ${type} (operator ${node}${part === undefined ? "" : `, ${part.backend}`})`);
  });
  return found;
}
