/** JSON line by line, so that a large dump is read while it arrives, and never stands in memory as one text. Chainrule
 * writes a dump so that each line is one of these: the begin of an object or of a list, its end, members of an object,
 * or items of a list. */

export class LineReader {
  /** The open objects and lists, the outermost first. @type {(Record<string, unknown> | unknown[])[]} */
  #open = [];
  /** The next line is an item or an end, an item (after a comma), or an end. @type {"both" | "item" | "end"} */
  #next = "item";
  /** @type {unknown} */
  #whole = undefined;

  /** @param {string} line without its line break @throws {SyntaxError} the lines are not JSON of this form */
  read(line) {
    const hasComma = line.endsWith(",");
    const body = hasComma ? line.slice(0, -1) : line;
    const parent = this.#open.at(-1);
    if (body === "}" || body === "]") {
      if (this.#next === "item" || parent === undefined || Array.isArray(parent) !== (body === "]"))
        throw unexpected(line);
      this.#open.pop();
      if (this.#open.length === 0 && hasComma) throw unexpected(line);
    } else if (this.#next === "end" || body.trim() === "") {
      throw unexpected(line);
    } else {
      const [, name = "", bracket] = /^(?:("[^"\\]*"):)?([[{])$/.exec(body) ?? [];
      if (bracket !== undefined) {
        this.#begin(parent, name, bracket === "[" ? [] : {}, line);
        this.#next = "both";
        if (hasComma) throw unexpected(line);
        return;
      }
      if (Array.isArray(parent)) { for (const item of JSON.parse(`[${body}]`)) parent.push(item); }
      else if (parent === undefined) throw unexpected(line);
      else for (const [key, value] of Object.entries(JSON.parse(`{${body}}`))) define(parent, key, value);
    }
    this.#next = hasComma ? "item" : "end";
  }

  /** @returns {unknown} the value of all lines @throws {SyntaxError} it has not ended */
  end() {
    if (this.#whole === undefined || this.#open.length > 0) throw new SyntaxError("Unexpected end of JSON input");
    return this.#whole;
  }

  /** @param {Record<string, unknown> | unknown[] | undefined} parent @param {string} name as in JSON
   * @param {Record<string, unknown> | unknown[]} made @param {string} line */
  #begin(parent, name, made, line) {
    if ((name === "") !== (parent === undefined || Array.isArray(parent))) throw unexpected(line);
    if (parent === undefined) {
      if (this.#whole !== undefined) throw unexpected(line);
      this.#whole = made;
    } else if (Array.isArray(parent)) parent.push(made);
    else define(parent, JSON.parse(name), made);
    this.#open.push(made);
  }
}

/** Sets a member as JSON.parse does, also one of the name `__proto__`. @param {Record<string, unknown>} object
 * @param {string} name @param {unknown} value */
function define(object, name, value) {
  if (name !== "__proto__") object[name] = value;
  else Object.defineProperty(object, name, { value, configurable: true, enumerable: true, writable: true });
}

/** @param {string} line @returns {SyntaxError} */
function unexpected(line) {
  return new SyntaxError(`Unexpected line ${JSON.stringify(line.slice(0, 40))}`);
}

/** The lines of a text that arrives in pieces. @param {AsyncIterable<string>} pieces @returns {AsyncGenerator<string>} */
export async function* linesOf(pieces) {
  /** The parts of the line that has not ended. @type {string[]} */
  let parts = [];
  for await (const piece of pieces) {
    const lines = piece.split("\n");
    const last = lines.pop() ?? "";
    for (const line of lines) {
      parts.push(line);
      yield parts.join("");
      parts = [];
    }
    if (last !== "") parts.push(last);
  }
  if (parts.length > 0) yield parts.join("");
}
