// Charts of a plan.

import { chart, type Spec } from "./chart";
import { HOST, type Calls, type Contestant, type Frontier, type Plan, type Round } from "./data";
import * as theme from "./theme";

/** What is so many times slower than what ships is a note: it would hide all other differences. */
const FAR = 2.5;

const ROLES = ["ships", "another plan", "an engine by its own API"];

export function contestChart(contest: Contestant[]): { drawn: HTMLElement | null; notes: string[] } {
  const near = contest.filter((one) => one.drawn !== null && one.drawn[0] <= FAR);
  const notes = contest
    .filter((one) => !near.includes(one))
    .map((one) => {
      const far = one.drawn !== null ? `takes ${Number(one.drawn[0].toPrecision(3))} times as long` : one.remark || "too few rounds for a ratio";
      return `${one.name}: ${far}${one.drawn === null && /\d/.test(one.latency) ? ` (${one.latency} ms)` : ""}`;
    });
  if (near.length < 2) return { drawn: null, notes };
  const values = near.map((one) => ({
    name: one.name,
    ratio: one.drawn![0],
    low: one.drawn![1],
    high: one.drawn![2],
    role: one.ships ? ROLES[0] : one.rival ? ROLES[2] : ROLES[1],
    about: `${one.name}: ${one.latency} ms, ratio ${one.ratio} (${one.interval})`,
  }));
  const ink = theme.ink;
  const spec = (): Spec => ({
    height: 26 * values.length,
    data: { values },
    encoding: {
      y: { field: "name", type: "nominal", sort: null, title: null },
      color: { field: "role", type: "nominal", scale: { domain: ROLES, range: ["#009e73", theme.NEUTRAL, "#0072b2"] }, legend: { title: null } },
      tooltip: { field: "about", type: "nominal" },
    },
    layer: [
      { mark: { type: "rule", strokeDash: [4, 4], color: ink() }, encoding: { x: { datum: 1, type: "quantitative" }, y: null, color: null, tooltip: null } },
      { mark: { type: "rule", strokeWidth: 3 }, encoding: { x: { field: "low", type: "quantitative", scale: { zero: false, padding: 12 }, title: "latency / that of what ships" }, x2: { field: "high" } } },
      { mark: { type: "point", filled: true, size: 110, opacity: 1 }, encoding: { x: { field: "ratio", type: "quantitative" }, shape: { field: "role", type: "nominal", scale: { domain: ROLES, range: ["circle", "square", "diamond"] }, legend: { title: null } } } },
    ],
  });
  return { drawn: chart("Ratio of each contestant's latency to that of what ships, with intervals", spec), notes };
}

export function roundsChart(rounds: Round[]): HTMLElement | null {
  const values = rounds.flatMap((round) =>
    [
      { kind: "sum of isolated costs", ms: round.isolated },
      { kind: "predicted before its run", ms: round.predicted },
      { kind: "measured end to end", ms: round.measured },
    ].flatMap(({ kind, ms }) => (ms === null ? [] : [{ round: round.name, kind, ms, spread: kind.startsWith("measured") ? (round.spread ?? 0) : 0 }])),
  );
  if (values.length === 0) return null;
  const kinds = ["sum of isolated costs", "predicted before its run", "measured end to end"];
  const spec = (): Spec => ({
    height: 34 * new Set(values.map(({ round }) => round)).size,
    data: { values },
    transform: [
      { calculate: "datum.ms - datum.spread", as: "low" },
      { calculate: "datum.ms + datum.spread", as: "high" },
    ],
    encoding: {
      y: { field: "round", type: "nominal", sort: null, title: null },
      color: { field: "kind", type: "nominal", scale: { domain: kinds, range: [theme.NEUTRAL, "#e69f00", "#009e73"] }, legend: { title: null } },
    },
    layer: [
      { mark: { type: "rule", strokeWidth: 3 }, encoding: { x: { field: "low", type: "quantitative", scale: { zero: false, padding: 12 }, title: "ms" }, x2: { field: "high" } } },
      {
        mark: { type: "point", filled: true, size: 110, opacity: 1 },
        encoding: {
          x: { field: "ms", type: "quantitative" },
          shape: { field: "kind", type: "nominal", scale: { domain: kinds, range: ["square", "triangle-up", "circle"] }, legend: { title: null } },
          tooltip: [{ field: "kind" }, { field: "ms", type: "quantitative", format: ".4~g" }],
        },
      },
    ],
  });
  return chart("Sums of costs and measured latency of each placement that was run", spec);
}

const VM = "virtual machine";
const GAPS = "gaps";
const REST = "before and after";

/** One call: a lane for each backend, and for what is not a partition. */
export function callsChart(plan: Plan, calls: Calls): HTMLElement {
  const names = [...new Set(plan.partitions.map((part) => part.backend).filter((name) => name !== HOST))].sort();
  const colours = theme.backendColours(names);
  const values = calls.bars.map((bar) => {
    const part = plan.partitions[bar.partition];
    const ms = `${Number((bar.end - bar.start).toPrecision(3))} ms`;
    const about = part === undefined ? `${bar.name}: ${ms}` : `${bar.partition + 1}: ${part.backend}, ${part.label}, ${ms}`;
    return { lane: part?.backend ?? (bar.partition === -1 ? VM : GAPS), start: bar.start, end: bar.end, about };
  });
  if (calls.rest > 0) {
    const about = calls.starts ? "before the first call and after the last one" : "calls, hand-overs and the virtual machine";
    values.push({ lane: REST, start: calls.end, end: calls.latency, about: `${about}: ${Number(calls.rest.toPrecision(3))} ms` });
  }
  const lanes = [...names, ...[VM, GAPS, REST].filter((lane) => values.some((value) => value.lane === lane))];
  const spec = (): Spec => ({
    height: 30 * lanes.length,
    data: { values },
    mark: { type: "bar", stroke: theme.paper(), strokeWidth: 0.6 },
    encoding: {
      y: { field: "lane", type: "nominal", sort: lanes, title: null },
      x: { field: "start", type: "quantitative", title: calls.starts ? "ms since the first partition began" : "ms, one after another" },
      x2: { field: "end" },
      color: { field: "lane", type: "nominal", scale: { domain: lanes, range: lanes.map((lane) => colours.get(lane) ?? theme.NEUTRAL) }, legend: null },
      tooltip: { field: "about", type: "nominal" },
    },
  });
  return chart("Time of each partition in one call", spec);
}


export function frontierChart(frontier: Frontier): HTMLElement {
  const spec = (): Spec => ({
    height: 260,
    data: { values: frontier.points },
    encoding: { x: { field: "error", type: "quantitative", title: "error, % (predicted; with what was measured)" } },
    layer: [
      { mark: { type: "line", interpolate: "step-after", strokeDash: [5, 4], color: theme.NEUTRAL }, transform: [{ filter: "datum.bound > 0" }], encoding: { y: { field: "bound", type: "quantitative", scale: { zero: false }, title: "ms" } } },
      { mark: { type: "line", interpolate: "step-after", color: "#0072b2" }, encoding: { y: { field: "sum", type: "quantitative" } } },
      { mark: { type: "point", filled: true, size: 80, opacity: 1, color: "#0072b2" }, encoding: { y: { field: "sum", type: "quantitative" }, tooltip: [{ field: "name" }, { field: "error", format: ".3~g" }, { field: "sum", format: ".4~g" }] } },
      { mark: { type: "rule", color: "#d55e00" }, transform: [{ filter: "datum.measured != null" }], encoding: { y: { field: "sum", type: "quantitative" }, x: { field: "measured", type: "quantitative" }, x2: { field: "upper" } } },
      { mark: { type: "point", shape: "diamond", filled: true, size: 90, opacity: 1, color: "#d55e00" }, transform: [{ filter: "datum.measured != null" }], encoding: { y: { field: "sum", type: "quantitative" }, x: { field: "measured", type: "quantitative" } } },
    ],
  });
  return chart("Sum of costs against error, of each placement of the frontier", spec);
}
