// A chart, by Vega-Lite. Expressions are interpreted: the page's policy lets no text become a script.

import { expressionInterpreter } from "vega-interpreter";
import { parse, View, type Runtime } from "vega";
import { compile, type TopLevelSpec } from "vega-lite";
import { element } from "./dom";
import * as theme from "./theme";

export type Spec = Record<string, unknown>;

const charts = new Set<{ host: HTMLElement; draw: () => void }>();

/** Draw all charts that are on the page again, in other colours or widths. */
export function redraw(): void {
  for (const chart of charts) {
    if (chart.host.isConnected) chart.draw();
    else charts.delete(chart);
  }
}

/** What a specification draws; it is asked for again where the width, or the theme, changes. */
export function chart(label: string, spec: (width: number) => Spec): HTMLElement {
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
        legend: { labelColor: ink, titleColor: ink, orient: "top", direction: "horizontal", columns: host.clientWidth < 500 ? 1 : 6, labelLimit: 220, labelFontSize: 12, symbolOpacity: 1 },
        text: { color: ink },
      },
      ...spec(host.clientWidth),
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
