// Makes bundle/: the page's script and style, the licences of what is inside, and digests that a test compares.
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { build } from "esbuild";

const result = await build({
  entryPoints: { report: "src/main.ts", "report.style": "src/style.css" },
  outdir: "bundle",
  bundle: true,
  minify: true,
  metafile: true,
  write: false,
  format: "iife",
  target: "es2022",
  charset: "ascii",
  legalComments: "none",
  logLevel: "warning",
});

for (const file of result.outputFiles) {
  const name = file.path.endsWith(".css") ? "report.css" : "report.js";
  if (/<!--|<\/script|<script/i.test(file.text)) throw new Error(`${name} could not stand inside of a page`);
  writeFileSync(`bundle/${name}`, file.text);
}

const packages = new Map();
for (const path of Object.keys(result.metafile.inputs)) {
  const inside = path.split("node_modules/").pop();
  if (inside === path) continue;
  const parts = inside.split("/");
  const name = parts[0].startsWith("@") ? parts.slice(0, 2).join("/") : parts[0];
  packages.set(name, path.slice(0, path.length - inside.length) + name);
}
const licences = [...packages.keys()].sort().map((name) => {
  const folder = packages.get(name);
  const { version, license } = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
  const file = readdirSync(folder).find((found) => /^licen[cs]e/i.test(found));
  if (file === undefined) throw new Error(`${name} has no licence file`);
  return `${name} ${version} (${license})\n\n${readFileSync(`${folder}/${file}`, "utf8").trim()}\n`;
});
writeFileSync("bundle/LICENCES.txt", licences.join(`\n${"-".repeat(80)}\n\n`));

const digest = (paths) => {
  const hash = createHash("sha256");
  for (const path of paths) hash.update(`${path}\n`).update(readFileSync(path)).update("\n");
  return hash.digest("hex");
};
const sources = ["build.mjs", "package-lock.json", "package.json", "tsconfig.json"].filter(existsSync);
sources.push(...readdirSync("src").sort().map((name) => `src/${name}`));
const made = ["LICENCES.txt", "report.css", "report.js"].map((name) => `bundle/${name}`);
writeFileSync(
  "bundle/digests.json",
  `${JSON.stringify({ sources: digest(sources), bundle: digest(made) }, null, 1)}\n`,
);
