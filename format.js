// `node format.js` writes static/ in the format of dprint.json, by dprint's WebAssembly plugin, which runs on every
// platform; `node format.js --check` names the files that differ and fails.

import { createFromBuffer } from "@dprint/formatter";
import { getPath } from "@dprint/typescript";
import { globSync, readFileSync, writeFileSync } from "node:fs";

const { lineWidth, indentWidth, newLineKind, typescript, includes, excludes } = JSON.parse(
  readFileSync("dprint.json", "utf8"),
);
const formatter = createFromBuffer(readFileSync(getPath()));
formatter.setConfig({ lineWidth, indentWidth, newLineKind }, typescript);
for (const { message } of formatter.getConfigDiagnostics()) throw new Error(message);

let differ = 0;
for (const filePath of globSync(includes, { exclude: excludes })) {
  const fileText = readFileSync(filePath, "utf8");
  // Twice: what the first pass breaks, the second may break otherwise.
  const formatted = formatter.formatText({ filePath, fileText: formatter.formatText({ filePath, fileText }) });
  if (formatted === fileText) continue;
  differ++;
  console.log(filePath);
  if (!process.argv.includes("--check")) writeFileSync(filePath, formatted);
}
if (process.argv.includes("--check")) process.exitCode = Math.min(differ, 1);
