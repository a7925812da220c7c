// What collage/report/page_data.py writes.

export interface Contestant {
  name: string;
  latency: string;
  percentile: string;
  ratio: string;
  interval: string;
  remark: string;
  drawn: [number, number, number] | null;
  ships: boolean;
  rival: boolean;
}

export interface Round {
  name: string;
  predicted: number | null;
  isolated: number | null;
  measured: number | null;
  spread: number | null;
  text: string;
}

export interface Calls {
  bars: { partition: number; start: number; end: number }[];
  sum: number;
  latency: number;
  rest: number;
}

export interface Table {
  columns: string[];
  rows: string[][];
}

export interface Frontier extends Table {
  points: {
    error: number;
    measured: number | null;
    upper: number | null;
    sum: number;
    bound: number;
    name: string;
  }[];
}

export interface Border {
  producer: number;
  backend: string;
  bytes: number;
  ms: number | null;
}

export interface Partition {
  backend: string;
  precision: string;
  label: string;
  nodes: number[];
  ms: number | null;
  cost: string;
  share: number | null;
  inside: number | null;
  runnerUp: string;
  runnerUpCost: string;
  margin: string;
  why: string;
  borders: Border[];
}

export interface Row {
  backend: string;
  operators: string;
  cost: string;
  times: number;
  share: string;
  runnerUp: string;
  margin: string;
  members: number[];
}

/** Operator, the nodes that it reads, type, name, and the place of its attributes or -1. */
export type Node = [string, number[], string, string, number];

/** Partition, backend, nodes, how its cost is known, milliseconds, cost, expected cost, and why it failed. */
export type Candidate = [number, string, number[], string, number | null, string, string, string];

export interface Candidates {
  found: number;
  asked: number;
  alike: number[];
  more: number[];
  listed: Candidate[];
}

/** A node, or a group. */
export type Member =
  | number
  | { kind: "partition"; partition: number; members: Member[] }
  | { kind: "repeat"; period: number; times: number; members: Member[] }
  | { kind: "block" | "piece"; members: Member[] };

export interface Plan {
  shapes: string;
  headline: string[];
  warning: string;
  verdict: string;
  facts: [string, string][];
  notes: string[];
  provenance: string;
  contest: Contestant[];
  rounds: Round[];
  calls: Calls | null;
  accuracy: string | null;
  frontier: Frontier | null;
  groups: Row[];
  copies: (Table & { text: string }) | null;
  partitions: Partition[];
  nodes: Node[];
  attributes: Record<string, unknown>[];
  tree: Member[];
  candidates: Candidates | null;
}

export interface Page {
  title: string;
  shapes: Table | null;
  plans: Plan[];
  /** Of a page that compares two plans, which shows no plan. */
  difference?: { headline: string; facts: Table; moved: Table };
}

export const HOST = "host";
