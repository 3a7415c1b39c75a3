/** Where a text stops being JSON. What browsers say of it themselves differs, and some name no place. */

const BLANK = /[ \t\n\r]*/y;
const STRING = /"[^"\\\u0000-\u001f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\u0000-\u001f]*)*"/y;
const NUMBER = /-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const WORD = /true|false|null/y;

/**
 * Finds the first place at which a text cannot be JSON; a walk over its tokens with a stack, for a text that
 * `JSON.parse` has refused.
 *
 * @param {string} text
 * @returns {{position: number, line: number, column: number, expected: string, found: string} | null} null: it is JSON
 */
export function jsonProblem(text) {
  let at = 0;
  /** @param {RegExp} token @returns {boolean} whether it stands here; if so, this goes on behind it */
  const take = (token) => {
    token.lastIndex = at;
    if (!token.test(text)) return false;
    at = token.lastIndex;
    return true;
  };
  /** @param {string} letter @returns {boolean} */
  const takeLetter = (letter) => {
    take(BLANK);
    if (text[at] !== letter) return false;
    at += 1;
    return true;
  };
  /** @param {string} expected */
  const problem = (expected) => {
    take(BLANK);
    const before = text.slice(0, at);
    const line = before.split("\n").length;
    return { position: at, line, column: at - before.lastIndexOf("\n"), expected, found: seen(text, at) };
  };

  /** Closing letters of the objects and lists that are open. @type {("}" | "]")[]} */
  const open = [];
  let wantsValue = true;
  for (;;) {
    if (wantsValue) {
      take(BLANK);
      if (takeLetter("{")) {
        if (!takeLetter("}")) {
          open.push("}");
          if (!take(STRING)) return problem("a key in double quotes");
          if (!takeLetter(":")) return problem("a colon");
          continue;
        }
      } else if (takeLetter("[")) {
        if (!takeLetter("]")) {
          open.push("]");
          continue;
        }
      } else if (!take(STRING) && !take(NUMBER) && !take(WORD)) {
        return problem("a value");
      }
      wantsValue = false;
    }
    const close = open.at(-1);
    if (close === undefined) {
      take(BLANK);
      return at === text.length ? null : problem("the end");
    }
    if (takeLetter(close)) {
      open.pop();
      continue;
    }
    if (!takeLetter(",")) return problem(`a comma or ${close}`);
    if (close === "}") {
      take(BLANK);
      if (!take(STRING)) return problem("a key in double quotes");
      if (!takeLetter(":")) return problem("a colon");
    }
    wantsValue = true;
  }
}

/** @param {string} text @param {number} at @returns {string} */
function seen(text, at) {
  return at >= text.length ? "the text ends" : `there is ${JSON.stringify(text.slice(at, at + 12))}`;
}
