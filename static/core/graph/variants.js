/** Repeated blocks that differ in little: which blocks of one type fold together, and what is different in which of them.
 * No DOM, no recursion. */

/** A difference is little if it has at most this share of a block's ops. */
const LITTLE = 0.5;
/** At most this share of the repetitions differ from the others, and at most so many are named. */
const FEW = 1 / 3;
const MOST_NAMED = 3;
/** Most ends that are tried for a run: many blocks of one type may all be different. */
const MOST_TRIES = 8;
/** Types of containers: two modules of such a type need not have the same contents. */
const CONTAINERS = new Set(["Sequential", "ModuleList", "ModuleDict", "container"]);

/** @typedef {{items: readonly (number | GroupNode)[], shapes: readonly number[]}} Raw the items of a group before anything
 * is folded, and their structures */

export class Variants {
  /** @type {Map<GroupNode, Raw>} */
  #raw = new Map();
  /** @type {Map<string, Tensor>} */
  #parameters;

  /** @param {Topology} topology */
  constructor({ modules, ops, tensors }) {
    this.modules = modules;
    this.ops = ops;
    this.#parameters = new Map(tensors.filter(({ role }) => role === "parameter").map((tensor) => [tensor.id, tensor]));
  }

  /** @param {GroupNode} group innermost ones first @param {readonly number[]} shapes of its items */
  add(group, shapes) {
    this.#raw.set(group, { items: group.items, shapes });
  }

  /** The longest run of blocks of one type, all but a few of which are alike. @param {readonly (number | GroupNode)[]} items
   * @param {readonly number[]} shapes @param {number} at where it starts @param {number} most items that a run of equal
   * blocks covers: a shorter run is none
   * @returns {number} how many blocks; 0 for none */
  run(items, shapes, at, most) {
    const first = items[at];
    let end = at;
    while (end < items.length && this.#isBlock(first) && this.#isOfOneType(first, items[end])) end += 1;
    for (let tries = 0; tries < MOST_TRIES && end - at > Math.max(1, most); tries += 1) {
      const [common, odd] = typical(shapes.slice(at, end));
      const block = items[at + common];
      const strange = odd.find((each) => this.#difference(items[at + each], block) === null);
      const surplus = odd.length > Math.max(1, FEW * (end - at)) ? odd.at(-1) : undefined;
      const cut = strange ?? surplus;
      if (cut === undefined) return end - at;
      end = at + cut;
    }
    return 0;
  }

  /** @param {number | GroupNode | undefined} one @param {number | GroupNode | undefined} other @returns {boolean} whether
   * both are modules of the same type */
  #isOfOneType(one, other) {
    return typeof one === "object" && typeof other === "object" && one.kind === "module" && other.kind === "module"
      && this.modules[one.module].type === this.modules[other.module].type;
  }

  /** @param {number | GroupNode | undefined} block @returns {boolean} whether it holds modules */
  #isBlock(block) {
    return typeof block === "object" && !CONTAINERS.has(this.modules[block.module].type)
      && this.#itemsOf(block).items.some((item) => typeof item !== "number");
  }

  /** @param {GroupNode} group @returns {Raw} */
  #itemsOf(group) {
    return this.#raw.get(group) ?? { items: group.items, shapes: [] };
  }

  /** The differences between the repetitions of a fold. @param {readonly (number | GroupNode)[]} items all repetitions
   * @param {readonly number[]} shapes @param {number} period items of one repetition
   * @returns {string[]} a phrase for each that differs */
  differences(items, shapes, period) {
    const repetitions = Array.from({ length: items.length / period },
      (_, at) => items.slice(at * period, (at + 1) * period));
    const [common, odd] = period > 1 ? [0, []] : typical(shapes);
    const found = odd.map((each) => this.#difference(items[each], items[common]) ?? "");
    const alike = repetitions.filter((_, at) => !odd.includes(at)).map((each) => this.#parametersOf(each));
    const sizes = alike.map((each) => each.map(({ shape }) => shape.join(" × ")));
    const [usual, others] = typical(sizes.map(String));
    if (others.length > Math.max(1, FEW * repetitions.length)) found.push("sizes differ");
    else {
      for (const each of others) {
        const at = sizes[each]?.findIndex((size, place) => size !== sizes[usual]?.[place]) ?? -1;
        found.push(`${alike[each]?.[at]?.name} ${sizes[each]?.[at]}`);
      }
    }
    return found.length <= MOST_NAMED ? found
      : [...found.slice(0, MOST_NAMED - 1), `${found.length - MOST_NAMED + 1} more`];
  }

  /** @param {readonly (number | GroupNode)[]} items @returns {number[]} the ops in them, in order */
  #opsOf(items) {
    const ops = [];
    const waiting = [...items].reverse();
    for (let item = waiting.pop(); item !== undefined; item = waiting.pop()) {
      if (typeof item === "number") ops.push(item);
      else waiting.push(...[...this.#itemsOf(item).items].reverse());
    }
    return ops;
  }

  /** @param {readonly (number | GroupNode)[]} items @returns {Tensor[]} */
  #parametersOf(items) {
    return this.#opsOf(items).flatMap((op) => this.ops[op].inputs.flatMap((id) => this.#parameters.get(id) ?? []));
  }

  /** @param {number | GroupNode | undefined} one @param {number | GroupNode | undefined} other
   * @returns {string | null} what one block has and another has not; null: it is not little, or they are no blocks */
  #difference(one, other) {
    const most = LITTLE * this.#opsOf(other === undefined ? [] : [other]).length;
    let [a, b] = [one, other];
    const around = typeof a === "object" ? this.modules[a.module].path.length - this.#shortPath(a).length : 0;
    for (;;) {
      if (typeof a !== "object" || typeof b !== "object") return null;
      const { more, less } = changed(this.#itemsOf(a), this.#itemsOf(b));
      const [inner, outer] = [more[0], less[0]];
      const isOne = more.length === 1 && less.length === 1;
      if (isOne && this.#isOfOneType(inner, outer)) {
        [a, b] = [inner, outer];
        continue;
      }
      if (this.#opsOf([...more, ...less]).length > most) return null;
      // The path inside a block.
      const place = this.modules[a.module].path.slice(around);
      if (less.length === 0) return `${place} also: ${this.#names(more)}`;
      if (more.length === 0) return `${place} without: ${this.#names(less)}`;
      return `${place}: ${this.#names(more)} instead of ${this.#names(less)}`;
    }
  }

  /** @param {GroupNode} group @returns {string} blocks.3 */
  #shortPath({ module }) {
    return this.modules[module].path.split(".").slice(-2).join(".");
  }

  /** @param {readonly (number | GroupNode)[]} items @returns {string} */
  #names(items) {
    const groups = items.filter((item) => typeof item !== "number");
    const names = groups.length > 0 ? groups.map((group) => this.#shortPath(group).replace(/^.*\./, ""))
      : items.map((item) => this.ops[Number(item)].name);
    return [...new Set(names)].join(", ");
  }
}

/** @template T @param {readonly T[]} values @returns {[number, number[]]} the last place of the most frequent value, and the
 * places of all others */
function typical(values) {
  /** @type {Map<T, number>} */
  const counts = new Map();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  const most = Math.max(...counts.values());
  const common = values.findLastIndex((value) => counts.get(value) === most);
  return [common, values.flatMap((value, at) => value === values[common] ? [] : [at])];
}

/** @param {Raw} one @param {Raw} other @returns {{more: (number | GroupNode)[], less: (number | GroupNode)[]}} what stands
 * between the equal beginnings and the equal ends of both */
function changed(one, other) {
  const most = Math.min(one.shapes.length, other.shapes.length);
  let head = 0;
  while (head < most && one.shapes[head] === other.shapes[head]) head += 1;
  let tail = 0;
  while (tail < most - head && one.shapes.at(-1 - tail) === other.shapes.at(-1 - tail)) tail += 1;
  return { more: one.items.slice(head, one.items.length - tail),
    less: other.items.slice(head, other.items.length - tail) };
}
