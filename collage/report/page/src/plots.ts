// Charts of sections: what collage/report/sections.py describes.

import { chart, type Spec } from "./chart";
import type { Bars, Curve, Drawing, Intervals, Scatter } from "./data";
import * as theme from "./theme";

const SHAPES = ["circle", "square", "diamond", "triangle-up", "cross", "triangle-down", "triangle-right", "triangle-left"];
/** Where a logarithmic scale of ratios has ticks. */
const RATIOS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.33, 0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 5, 10, 20, 50, 100];

/** Pixels: a chart of two equal axes is not wider. */
const WIDEST = 720;

/** Powers of ten between two numbers; of few of them also what is between. */
function ticks(low: number, high: number): number[] {
  const steps = high / low < 5 ? [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8] : high / low < 200 ? [1, 2, 5] : [1];
  const found: number[] = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1) {
    found.push(...steps.map((step) => step * 10 ** power).filter((at) => at >= low && at <= high));
  }
  return found;
}

export function plot(drawing: Drawing): HTMLElement {
  switch (drawing.kind) {
    case "scatter":
      return scatter(drawing);
    case "intervals":
      return intervals(drawing);
    case "curve":
      return curve(drawing);
    case "bars":
      return bars(drawing);
  }
}

function colour(groups: string[]): Spec {
  const colours = theme.groupColours(groups);
  return { field: "group", type: "nominal", scale: { domain: groups, range: groups.map((name) => colours.get(name)) }, legend: groups.length > 1 ? { title: null } : null };
}

function shape(groups: string[]): Spec {
  const range = groups.map((_, i) => SHAPES[i % SHAPES.length]);
  return { field: "group", type: "nominal", scale: { domain: groups, range }, legend: groups.length > 1 ? { title: null } : null };
}

function scatter(drawing: Scatter): HTMLElement {
  const values = drawing.points.map(([x, y, low, high, group, about]) => ({ x, y, low, high, group: drawing.groups[group], about }));
  const all = values.flatMap(({ x, y }) => [x, y]);
  const domain = [Math.min(...all) / 1.3, Math.max(...all) * 1.3];
  const axis = { values: ticks(domain[0]!, domain[1]!), format: ".3~g", labelOverlap: true };
  const scale = { type: "log", domain, nice: false };
  const many = values.length > 150;
  return chart(drawing.label, (width) => ({
    width: Math.min(width, WIDEST),
    height: Math.min(460, width),
    data: { values },
    encoding: {
      x: { field: "x", type: "quantitative", scale, axis, title: drawing.x },
      color: colour(drawing.groups),
      tooltip: { field: "about", type: "nominal" },
    },
    layer: [
      {
        data: { values: domain.map((end) => ({ end })) },
        mark: { type: "line", strokeDash: [5, 4], color: theme.ink() },
        encoding: { x: { field: "end", type: "quantitative", scale }, y: { field: "end", type: "quantitative" }, color: null, tooltip: null },
      },
      { mark: { type: "rule", clip: true, opacity: many ? 0.22 : 0.6, strokeWidth: many ? 1 : 2 }, encoding: { y: { field: "low", type: "quantitative", scale, axis, title: drawing.y }, y2: { field: "high" } } },
      { mark: { type: "point", filled: true, size: many ? 24 : 60, opacity: many ? 0.75 : 1 }, encoding: { y: { field: "y", type: "quantitative" }, shape: shape(drawing.groups) } },
    ],
  }));
}

function intervals(drawing: Intervals): HTMLElement {
  const values = drawing.rows.map(([name, value, low, high, group, about]) => ({ name, value, low, high, group: drawing.groups[group], about }));
  const domain = [Math.min(0.95, ...values.map(({ low }) => low)) / 1.05, Math.max(1.05, ...values.map(({ high }) => high)) * 1.05];
  const axis = { values: RATIOS.filter((at) => at >= domain[0]! && at <= domain[1]!), labelOverlap: true, format: "~g" };
  const scale = { type: "log", domain, nice: false };
  return chart(drawing.label, () => ({
    height: 24 * values.length,
    data: { values },
    encoding: {
      y: { field: "name", type: "nominal", sort: null, title: null },
      color: drawing.groups.length > 1 ? { ...colour(drawing.groups), legend: null } : { value: theme.LINK },
      tooltip: { field: "about", type: "nominal" },
    },
    layer: [
      { mark: { type: "rule", strokeDash: [4, 4], color: theme.ink() }, encoding: { x: { datum: 1, type: "quantitative" }, y: null, color: null, tooltip: null } },
      { mark: { type: "rule", strokeWidth: 3 }, encoding: { x: { field: "low", type: "quantitative", scale, axis, title: drawing.x }, x2: { field: "high" } } },
      { mark: { type: "point", filled: true, size: 100, opacity: 1 }, encoding: { x: { field: "value", type: "quantitative" } } },
    ],
  }));
}

function curve(drawing: Curve): HTMLElement {
  const names = drawing.lines.map(({ name }) => name);
  const values = drawing.lines.flatMap(({ name, points }) => points.map(([x, y]) => ({ group: name, x, y, about: `${name}: ${percent(y)} of intervals of ${percent(x)}` })));
  const least = Math.max(0, Math.min(...values.flatMap(({ x, y }) => [x, y])) - 0.05);
  const scale = { domain: [least, 1], nice: false };
  const axis = { format: "~%", tickCount: 6 };
  return chart(drawing.label, (width) => ({
    width: Math.min(width, WIDEST),
    height: Math.min(360, width),
    data: { values },
    encoding: {
      x: { field: "x", type: "quantitative", scale, axis, title: drawing.x },
      y: { field: "y", type: "quantitative", scale, axis, title: drawing.y },
      color: colour(names),
    },
    layer: [
      {
        data: { values: [{ x: least, y: least }, { x: 1, y: 1 }] },
        mark: { type: "line", strokeDash: [5, 4], color: theme.ink() },
        encoding: { color: null },
      },
      { mark: { type: "line", strokeWidth: 2 } },
      { mark: { type: "point", filled: true, size: 60, opacity: 1 }, encoding: { shape: shape(names), tooltip: { field: "about", type: "nominal" } } },
    ],
  }));
}

function percent(share: number): string {
  return `${Number((100 * share).toPrecision(3))}%`;
}

function bars(drawing: Bars): HTMLElement {
  const values = drawing.bars.map(([name, value, group, about], order) => ({ name, value, group: drawing.groups[group], about, order }));
  return chart(drawing.label, () => ({
    height: 24 * new Set(values.map(({ name }) => name)).size,
    data: { values },
    mark: { type: "bar", stroke: theme.paper(), strokeWidth: 0.6 },
    encoding: {
      y: { field: "name", type: "nominal", sort: null, title: null },
      x: { field: "value", type: "quantitative", title: drawing.x, axis: { format: "~s", labelOverlap: true, tickMinStep: 1, tickCount: 8 } },
      order: { field: "order", type: "quantitative" },
      color: colour(drawing.groups),
      tooltip: { field: "about", type: "nominal" },
    },
  }));
}
