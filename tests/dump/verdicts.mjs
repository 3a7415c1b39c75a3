/** Reads dumps, a line of JSON each, and says of each: its drawing, or the place at which it is refused. */

import { createInterface } from "node:readline";

import { readDump } from "../../static/core/dump/dump.js";
import { renderSvg } from "../../static/core/takeaway/headless.js";

const WISHES = { level: "all", toggled: [], fold: true, statistic: "std", scheme: "light", bins: "own" };

function verdict(text) {
  try {
    readDump(text);
  } catch (problem) {
    return problem.name === "DumpProblem" ? { place: problem.where } : { crash: problem.stack };
  }
  try {
    return { svg: renderSvg(text, WISHES) };
  } catch (error) {
    return { crash: error.stack };
  }
}

for await (const line of createInterface({ input: process.stdin }))
  process.stdout.write(`${JSON.stringify(verdict(JSON.parse(line)))}\n`);
