// The page of a plan, of plans for several shapes, or of other sections, made of the data that the page holds.

import { redraw } from "./chart";
import { callsChart, contestChart, frontierChart, roundsChart } from "./charts";
import type { Page, Plan } from "./data";
import { button, element, fold, section, table } from "./dom";
import { milliseconds } from "./labels";
import { network, type Network } from "./network";
import { sectionOf } from "./sections";
import * as theme from "./theme";

const page = JSON.parse(document.getElementById("data")!.textContent!) as Page;
const root = document.getElementById("page")!;
let shown: Network | null = null;

function repaint(): void {
  redraw();
  shown?.graph.restyle();
}

function header(): HTMLElement {
  const toggle = button("", () => {
    document.documentElement.dataset["theme"] = theme.isDark() ? "light" : "dark";
    name();
    repaint();
  });
  const name = (): void => {
    toggle.textContent = theme.isDark() ? "Light" : "Dark";
  };
  name();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    name();
    repaint();
  });
  return element("header", {}, element("h1", {}, page.title), toggle);
}

function headline(lines: string[], warning = ""): HTMLElement {
  const made = element("div", { class: "headline" });
  if (warning !== "") made.append(element("p", { class: "warning" }, warning));
  lines.forEach((line, i) => made.append(element("p", i === 0 ? { class: "ships" } : {}, line)));
  return made;
}

function contest(plan: Plan): HTMLElement | null {
  if (plan.contest.length === 0) return null;
  const { drawn, notes } = contestChart(plan.contest);
  const rows = plan.contest.map((one) => [
    element("span", one.ships ? { class: "chosen" } : {}, one.name),
    one.latency,
    one.percentile,
    one.ratio,
    one.interval,
    one.remark,
  ]);
  const columns = ["plan", "end to end, ms", "95th percentile", "ratio", "95% interval", "remark"];
  const list = notes.length === 0 ? null : element("ul", {}, ...notes.map((note) => element("li", {}, note)));
  return section(
    "The contest",
    "contest",
    element("p", {}, plan.verdict),
    drawn,
    list === null ? null : element("p", { class: "faint" }, "Not drawn:"),
    list,
    fold("All contestants", table(columns, rows, [1, 2, 3])),
  );
}

function partitions(plan: Plan, made: Network | null): HTMLElement {
  const rows = plan.groups.map((row) => {
    let at = -1;
    const next = (): void => {
      at = (at + 1) % row.members.length;
      made?.go(made.graph.levels.partition(row.members[at]!));
      document.getElementById("network")?.scrollIntoView({ block: "start" });
    };
    const name = made === null ? row.operators : button(row.operators, next, { class: "link", title: "Show in the graph" });
    const against = row.runnerUp === "" ? "none" : `${row.runnerUp} ${row.margin}`;
    return [row.backend, name, row.cost, String(row.times), row.share, against];
  });
  const columns = ["backend", "operators", "each, ms", "times", "share", "runner-up"];
  const found = section("What runs where", "partitions", table(columns, rows, [2, 3, 4]));
  const { copies } = plan;
  if (copies !== null) found.append(element("p", {}, copies.text), table(copies.columns, copies.rows, [3, 4, 5]));
  return found;
}

function rounds(plan: Plan): HTMLElement | null {
  if (plan.facts.length === 0) return null;
  const list = element("dl", {}, ...plan.facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
  return section("Search and correction", "rounds", roundsChart(plan.rounds), list);
}

function calls(plan: Plan): HTMLElement | null {
  if (plan.calls === null) return null;
  const { sum, end, latency, threads, starts } = plan.calls;
  const what = starts
    ? `Partitions take ${milliseconds(sum)} of the ${milliseconds(end)} of the call that was watched; end to end a call takes ${milliseconds(latency)}. One thread makes all calls, one after another. In gaps the virtual machine works, and the stopwatch.`
    : `Partitions take ${milliseconds(sum)} of ${milliseconds(latency)} inside the whole. They run one after another; their durations were measured, not their starts, so that what is between them stands at the end.`;
  const text = `${what} Inside of a partition its engine uses up to ${threads} thread${threads === 1 ? "" : "s"}.`;
  const gaps = plan.calls.bars.filter((bar) => bar.partition < 0).sort((a, b) => b.end - b.start - (a.end - a.start));
  const rows = gaps.slice(0, 12).map((bar) => [bar.name, milliseconds(bar.end - bar.start), milliseconds(bar.start)]);
  const list = rows.length === 0 ? null : fold("What is between partitions", table(["what", "takes", "begins at"], rows, [1, 2]));
  return section("One call", "calls", element("p", {}, text), callsChart(plan, plan.calls), list);
}

function frontier(plan: Plan): HTMLElement | null {
  if (plan.accuracy === null) return null;
  const made = section("Latency and error", "frontier", element("p", {}, plan.accuracy));
  if (plan.frontier !== null) {
    made.append(frontierChart(plan.frontier), fold("All placements", table(plan.frontier.columns, plan.frontier.rows)));
  }
  return made;
}

function notes(plan: Plan): HTMLElement {
  const list = element("ul", {}, ...plan.notes.map((note) => element("li", {}, note)));
  return section("Notes", "notes", plan.notes.length > 0 ? list : null, element("p", { class: "faint" }, plan.provenance));
}

function show(plan: Plan, into: HTMLElement): void {
  shown = plan.nodes.length > 0 ? network(plan) : null;
  const sections = [
    headline(plan.headline, plan.warning),
    contest(plan),
    shown?.host ?? null,
    partitions(plan, shown),
    rounds(plan),
    plan.estimator === null ? null : sectionOf(plan.estimator),
    calls(plan),
    frontier(plan),
    notes(plan),
  ];
  into.replaceChildren(...sections.filter((made) => made !== null));
  shown?.start();
}

function start(): void {
  const main = element("main");
  root.append(header());
  if (page.shapes !== null) {
    const choice = element("select", { "aria-label": "Shapes of the inputs" });
    page.plans.forEach((plan, i) => choice.append(element("option", { value: String(i) }, plan.shapes)));
    choice.addEventListener("change", () => show(page.plans[Number(choice.value)]!, main));
    root.append(section("Shapes", "shapes", table(page.shapes.columns, page.shapes.rows, [3, 4, 5]), choice));
  }
  root.append(main);
  if (page.sections !== undefined) main.append(headline(page.headline ?? []), ...page.sections.map(sectionOf));
  else show(page.plans[0]!, main);
}

start();
