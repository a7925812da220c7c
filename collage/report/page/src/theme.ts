// Colours that people with colour blindness can tell apart (Okabe and Ito), for light and dark pages.

const BACKENDS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#8c6bb1"];
const PRECISIONS: Record<string, string> = { float32: "#0072b2", bf16: "#e69f00", int8: "#d55e00" };
/** Of little to much time: one hue, so that it reads without colour, too. */
const HEAT: [number, number, number][] = [
  [255, 247, 236],
  [253, 187, 132],
  [239, 101, 72],
  [127, 0, 0],
];
export const NEUTRAL = "#8a8f98";
const MEANINGS: Record<string, string> = {
  ok: "#009e73",
  invalid: "#d55e00",
  quiet: "#009e73",
  disturbed: "#e69f00",
  "conditions not known": NEUTRAL,
};
export const LINK = "#0072b2";

export function isDark(): boolean {
  const chosen = document.documentElement.dataset["theme"];
  return chosen === undefined ? matchMedia("(prefers-color-scheme: dark)").matches : chosen === "dark";
}

export function ink(): string {
  return isDark() ? "#e8eaed" : "#1d2127";
}

export function paper(): string {
  return isDark() ? "#16191d" : "#ffffff";
}

export function backendColours(names: string[]): Map<string, string> {
  const sorted = [...new Set(names)].sort();
  return new Map(sorted.map((name, i) => [name, BACKENDS[i % BACKENDS.length] ?? NEUTRAL]));
}

/** Of groups: those of backends, but where all of them have a meaning. */
export function groupColours(names: string[]): Map<string, string> {
  return names.every((name) => name in MEANINGS) ? new Map(names.map((name) => [name, MEANINGS[name]!])) : backendColours(names);
}

export function precisionColour(precision: string): string {
  return PRECISIONS[precision] ?? NEUTRAL;
}

/** Of a share between 0 and 1 of the largest one. */
export function heatColour(share: number): string {
  const at = Math.min(1, Math.max(0, share)) * (HEAT.length - 1);
  const [low, high] = [HEAT[Math.floor(at)]!, HEAT[Math.ceil(at)]!];
  const mixed = low.map((value, i) => Math.round(value + (high[i]! - value) * (at - Math.floor(at))));
  return `#${mixed.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
}

/** Black or white, whichever reads better on a colour. */
export function inkOn(colour: string): string {
  const [red, green, blue] = [1, 3, 5].map((at) => (parseInt(colour.slice(at, at + 2), 16) / 255) ** 2.2);
  return 0.2126 * red! + 0.7152 * green! + 0.0722 * blue! > 0.3 ? "#111111" : "#ffffff";
}
