// Levels of detail: which groups are open, what is then drawn, and which edges are between.

import { HOST, type Member, type Plan } from "./data";

export interface Item {
  id: number;
  kind: "operator" | "partition" | "repeat" | "block" | "piece";
  parent: Item | null;
  members: Item[];
  /** Of an operator: its node; else -1. */
  node: number;
  /** Of a partition and what is inside: its number; else -1. */
  partition: number;
  times: number;
  operators: number;
  /** Numbers of the partitions inside. */
  partitions: number[];
  ms: number;
}

export interface Edge {
  source: Item;
  target: Item;
  count: number;
}

export interface View {
  drawn: Item[];
  open: Item[];
  edges: Edge[];
}

/** How many items may be drawn at once. */
export const MOST = 1200;

export class Levels {
  readonly items: Item[] = [];
  readonly top: Item[];
  readonly opened = new Set<Item>();
  private readonly ofNode = new Map<number, Item>();
  private readonly ofPartition = new Map<number, Item>();

  constructor(readonly plan: Plan) {
    const given = plan.nodes.flatMap((node, i) => (node[0] === "input" ? [i] : []));
    this.top = [...given, ...plan.tree].map((member) => this.made(member, null));
    this.openOutermost(80);
  }

  item(id: number): Item | undefined {
    return this.items[id];
  }

  operator(node: number): Item | undefined {
    return this.ofNode.get(node);
  }

  partition(number: number): Item | undefined {
    return this.ofPartition.get(number);
  }

  canOpen(item: Item): boolean {
    return item.members.length > 1 || (item.members.length === 1 && item.kind !== "partition");
  }

  /** Whether it was opened: not where too much would be drawn. */
  open(item: Item): boolean {
    if (!this.canOpen(item) || this.size() + item.members.length > MOST) return false;
    this.opened.add(item);
    return true;
  }

  close(item: Item): void {
    this.opened.delete(item);
    for (const member of item.members) this.close(member);
  }

  /** Open all that an item is inside of. */
  reveal(item: Item): void {
    for (let above = item.parent; above !== null; above = above.parent) if (this.canOpen(above)) this.opened.add(above);
  }

  /** What is drawn for an item: itself, or the closed group that it is inside of. */
  shown(item: Item): Item {
    let found = item;
    for (let above = item.parent; above !== null; above = above.parent) if (!this.opened.has(above)) found = above;
    return found;
  }

  get repeats(): Item[] {
    return this.items.filter((item) => item.kind === "repeat" && item.partition < 0);
  }

  size(): number {
    let count = 0;
    const walk = (item: Item): void => {
      if (this.opened.has(item)) item.members.forEach(walk);
      else count += 1;
    };
    this.top.forEach(walk);
    return count;
  }

  view(): View {
    const drawn: Item[] = [];
    const open: Item[] = [];
    const at: (Item | undefined)[] = new Array(this.plan.nodes.length);
    const cover = (item: Item, by: Item): void => {
      if (item.node >= 0) at[item.node] = by;
      for (const member of item.members) cover(member, by);
    };
    const walk = (item: Item): void => {
      if (this.opened.has(item)) {
        open.push(item);
        item.members.forEach(walk);
      } else {
        drawn.push(item);
        cover(item, item);
      }
    };
    this.top.forEach(walk);
    const edges = new Map<number, Edge>();
    this.plan.nodes.forEach((node, i) => {
      const target = at[i];
      if (target === undefined) return;
      for (const read of node[1]) {
        const source = at[read];
        if (source === undefined || source === target) continue;
        const key = source.id * this.items.length + target.id;
        const known = edges.get(key);
        if (known === undefined) edges.set(key, { source, target, count: 1 });
        else known.count += 1;
      }
    });
    return { drawn, open, edges: [...edges.values()] };
  }

  /** Open groups of partitions as long as little is drawn; of few partitions, these too. */
  openOutermost(most: number): void {
    const few = this.plan.partitions.filter((part) => part.backend !== HOST).length <= 3;
    const waiting = [...this.top];
    for (let item = waiting.shift(); item !== undefined; item = waiting.shift()) {
      if (item.kind === "operator" || (item.kind === "partition" && !few) || !this.canOpen(item)) continue;
      // A repetition is opened together with its blocks, or stays folded.
      const blocks = item.kind === "repeat" ? item.members.filter((inner) => inner.kind !== "operator" && inner.kind !== "partition") : [];
      const shown = item.members.length + blocks.reduce((sum, block) => sum + block.members.length - 1, 0);
      if (this.size() - 1 + shown > most) continue;
      for (const inner of [item, ...blocks]) this.opened.add(inner);
      waiting.push(...item.members.filter((inner) => !blocks.includes(inner)), ...blocks.flatMap((block) => block.members));
    }
  }

  private made(member: Member, parent: Item | null): Item {
    const item: Item = {
      id: this.items.length,
      kind: typeof member === "number" ? "operator" : member.kind,
      parent,
      members: [],
      node: typeof member === "number" ? member : -1,
      partition: parent === null ? -1 : parent.partition,
      times: 1,
      operators: 1,
      partitions: [],
      ms: 0,
    };
    this.items.push(item);
    if (typeof member === "number") {
      this.ofNode.set(member, item);
      return item;
    }
    if (member.kind === "partition") {
      item.partition = member.partition;
      this.ofPartition.set(member.partition, item);
    }
    if (member.kind === "repeat") item.times = member.times;
    item.members = member.members.map((inner) => this.made(inner, item));
    item.operators = item.members.reduce((sum, inner) => sum + inner.operators, 0);
    const own = member.kind === "partition";
    item.partitions = own ? [member.partition] : item.members.flatMap((inner) => inner.partitions);
    const ms = own ? this.plan.partitions[member.partition]?.ms : null;
    item.ms = ms ?? item.members.reduce((sum, inner) => sum + inner.ms, 0);
    return item;
  }
}
