// Charts, by Vega-Lite. Expressions are interpreted: the page's policy lets no text become a script.

import { expressionInterpreter } from "vega-interpreter";
import { parse, View, type Runtime } from "vega";
import { compile, type TopLevelSpec } from "vega-lite";
import { HOST, type Calls, type Contestant, type Frontier, type Plan, type Round } from "./data";
import { element } from "./dom";
import * as theme from "./theme";

type Spec = Record<string, unknown>;

/** What is so many times slower than what ships is a note: it would hide all other differences. */
const FAR = 2.5;

const charts = new Set<{ host: HTMLElement; draw: () => void }>();

/** Draw all charts that are on the page again, in other colours or widths. */
export function redraw(): void {
  for (const chart of charts) {
    if (chart.host.isConnected) chart.draw();
    else charts.delete(chart);
  }
}

function chart(label: string, spec: () => Spec): HTMLElement {
  const host = element("div", { class: "chart", role: "img", "aria-label": label });
  let view: View | null = null;
  const draw = (): void => {
    if (host.clientWidth === 0) return;
    view?.finalize();
    const ink = theme.ink();
    const full = {
      background: null,
      autosize: { type: "fit-x", contains: "padding" },
      width: host.clientWidth,
      config: {
        font: "system-ui, sans-serif",
        view: { stroke: null },
        axis: { labelColor: ink, titleColor: ink, gridColor: theme.isDark() ? "#3a3f46" : "#dfe2e6", domainColor: theme.NEUTRAL, tickColor: theme.NEUTRAL, labelLimit: Math.min(260, host.clientWidth / 3), titleFontWeight: "normal", labelFontSize: 12, titleFontSize: 12 },
        legend: { labelColor: ink, titleColor: ink, orient: "top", direction: "horizontal", columns: host.clientWidth < 500 ? 1 : 6, labelLimit: 220, labelFontSize: 12 },
        text: { color: ink },
      },
      ...spec(),
    };
    const { spec: compiled } = compile(full as unknown as TopLevelSpec);
    const runtime: Runtime = parse(compiled, undefined, { ast: true });
    view = new View(runtime, { expr: expressionInterpreter, renderer: "svg", container: host, hover: true });
    void view.runAsync();
  };
  charts.add({ host, draw });
  let width = 0;
  new ResizeObserver(() => {
    if (host.clientWidth === width) return;
    width = host.clientWidth;
    draw();
  }).observe(host);
  return host;
}

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
      { mark: { type: "rule", strokeWidth: 3 }, encoding: { x: { field: "low", type: "quantitative", scale: { zero: false, padding: 12 }, title: "latency / that of what ships (95% interval)" }, x2: { field: "high" } } },
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

export function callsChart(plan: Plan, calls: Calls): HTMLElement {
  const between = "outside of partitions";
  const names = [...new Set(plan.partitions.map((part) => part.backend).filter((name) => name !== HOST))].sort();
  const colours = theme.backendColours(names);
  const values = calls.bars.map((bar) => {
    const part = plan.partitions[bar.partition]!;
    return { lane: part.backend, start: bar.start, end: bar.end, about: `${bar.partition + 1}: ${part.backend}, ${part.label}, ${Number((bar.end - bar.start).toPrecision(3))} ms` };
  });
  if (calls.rest > 0) {
    values.push({ lane: between, start: calls.sum, end: calls.latency, about: `calls, hand-overs and the virtual machine: ${Number(calls.rest.toPrecision(3))} ms` });
  }
  const lanes = [...names, ...(calls.rest > 0 ? [between] : [])];
  const spec = (): Spec => ({
    height: 30 * lanes.length,
    data: { values },
    mark: { type: "bar", stroke: theme.paper(), strokeWidth: 0.6 },
    encoding: {
      y: { field: "lane", type: "nominal", sort: lanes, title: null },
      x: { field: "start", type: "quantitative", title: "ms since the call" },
      x2: { field: "end" },
      color: { field: "lane", type: "nominal", scale: { domain: lanes, range: lanes.map((lane) => colours.get(lane) ?? theme.NEUTRAL) }, legend: null },
      tooltip: { field: "about", type: "nominal" },
    },
  });
  return chart("Time of each partition in one call, one after another", spec);
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
