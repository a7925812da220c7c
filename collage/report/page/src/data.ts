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
  /** Whether bars stand where they began; else one after another. */
  starts: boolean;
  /** `partition` is -1 of what the virtual machine calls besides, and -2 of a gap. */
  bars: { partition: number; name: string; start: number; end: number }[];
  sum: number;
  end: number;
  latency: number;
  rest: number;
  threads: number;
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
  estimator: Section | null;
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
  /** Of a page that shows no plan. */
  headline?: string[];
  sections?: Section[];
}

interface Labelled {
  label: string;
  x: string;
  groups: string[];
}

/** Measured, predicted, ends of the interval, number of the group, and what a reader is told. */
export interface Scatter extends Labelled {
  kind: "scatter";
  y: string;
  points: [number, number, number, number, number, string][];
}

/** Name, ratio, ends of the interval, number of the group, and what a reader is told. */
export interface Intervals extends Labelled {
  kind: "intervals";
  rows: [string, number, number, number, number, string][];
}

export interface Curve {
  kind: "curve";
  label: string;
  x: string;
  y: string;
  lines: { name: string; points: [number, number][] }[];
}

/** Name, value, number of the group, and what a reader is told; pieces of one name stand one after the other. */
export interface Bars extends Labelled {
  kind: "bars";
  bars: [string, number, number, string][];
}

export type Drawing = Scatter | Intervals | Curve | Bars;

/** What collage/report/sections.py writes. */
export interface Section {
  id: string;
  title: string;
  text: string[];
  charts: Drawing[];
  tables: (Table & { numbers: number[]; fold: string })[];
}

export const HOST = "host";
