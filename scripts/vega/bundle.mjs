// Bundle Vega, Vega-Lite and its interpreter, with their licenses, as k8sdds/report/templates/vega.js.
import { build } from "esbuild";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";

const output = process.argv[2];
const options = {
  entryPoints: ["entry.js"], bundle: true, minify: true, format: "iife", globalName: "vegaFigures", target: "es2020",
  charset: "ascii", legalComments: "none", metafile: true, outfile: output,
};
const { metafile } = await build({ ...options, write: false });

function packageOf(file) {
  let folder = dirname(file);
  while (!existsSync(join(folder, "package.json"))) folder = dirname(folder);
  return folder;
}

const folders = [...new Set(Object.keys(metafile.inputs).filter((file) => file.includes("node_modules")).map(packageOf))];
const texts = new Map();
for (const folder of folders.sort()) {
  const { name, version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
  if (!file) throw new Error(`${name} has no license file`);
  const text = readFileSync(join(folder, file), "utf8").trim();
  texts.set(text, [...(texts.get(text) ?? []), `${name} ${version}`]);
}
const licenses = [...texts].map(([text, names]) => `${names.join(", ")}\n\n${text}`).join("\n\n");
await build({ ...options, banner: { js: `/*\n${licenses.replaceAll("*/", "* /")}\n*/` } });
