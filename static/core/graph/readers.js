/** A graph's edges as arrays of numbers, the forward op of every backward op, and the results that are always drawn. No
 * DOM. */

/** @typedef {ReturnType<typeof wiring>} Wiring */

/** Up to this length, a search through a list is faster than a set. */
const FEW = 8;

/** Who makes and reads what, by number; ids that nothing has are left out. @param {Topology} topology
 * @param {ReadonlyMap<string, number>} opIndex @param {ReadonlyMap<string, number>} tensorIndex */
export function wiring({ ops, tensors, saved }, opIndex, tensorIndex) {
  const toTensors = (/** @type {readonly string[]} */ ids) => numbers(ids, tensorIndex);
  const toOps = (/** @type {readonly string[]} */ ids) => numbers(ids, opIndex).sort((a, b) => a - b);
  const [inputStart, inputs] = lists(ops.map((op) => toTensors(op.inputs)));
  const [outputStart, outputs] = lists(ops.map((op) => toTensors(op.outputs)));
  const [consumerStart, consumers] = lists(tensors.map((tensor) => toOps(tensor.consumers)));
  const producer = Int32Array.from(tensors, (tensor) => opIndex.get(tensor.producer ?? "") ?? -1);
  const gradientOf = Int32Array.from(tensors, (tensor) => tensorIndex.get(tensor.gradient_of ?? "") ?? -1);
  // The parts of a gradient belong to the same tensor as their sum.
  for (const op of ops) {
    const whole = gradientOf[tensorIndex.get(op.outputs[0] ?? "") ?? -1] ?? -1;
    if (op.name !== "accumulate" || op.phase !== "backward" || whole < 0) continue;
    for (const part of toTensors(op.inputs)) if (gradientOf[part] === -1) gradientOf[part] = whole;
  }
  const tensorHalf = Uint8Array.from(tensors, ({ role }, tensor) => {
    if (role === "gradient" || gradientOf[tensor] >= 0) return 1;
    const maker = producer[tensor];
    const op = maker >= 0 ? maker : consumers[consumerStart[tensor]];
    return (consumerStart[tensor + 1] > consumerStart[tensor] || maker >= 0) && ops[op].phase === "backward" ? 1 : 0;
  });
  const kept = saved.filter(({ tensor, op }) => tensorIndex.has(tensor) && opIndex.has(op));
  const savedTensor = Int32Array.from(kept, ({ tensor }) => tensorIndex.get(tensor) ?? -1);
  const savedOp = Int32Array.from(kept, ({ op }) => opIndex.get(op) ?? -1);
  return { inputStart, inputs, outputStart, outputs, consumerStart, consumers, producer, gradientOf, tensorHalf,
    savedTensor, savedOp };
}

/** @param {readonly string[]} ids @param {ReadonlyMap<string, number>} index @returns {number[]} each once, unknown
 * ones left out */
function numbers(ids, index) {
  /** @type {number[]} */
  const found = [];
  for (const id of ids.length > FEW ? new Set(ids) : ids) {
    const number = index.get(id);
    if (number !== undefined && (ids.length > FEW || !found.includes(number))) found.push(number);
  }
  return found;
}

/** @param {readonly (readonly number[])[]} rows @returns {[Int32Array, Int32Array]} where each starts, and all of
 * them */
function lists(rows) {
  const starts = new Int32Array(rows.length + 1);
  rows.forEach((row, index) => (starts[index + 1] = starts[index] + row.length));
  const all = new Int32Array(starts[rows.length]);
  rows.forEach((row, index) => all.set(row, starts[index]));
  return [starts, all];
}

/** Backward op → the forward op that it stands beneath. @param {Topology} topology
 * @param {ReadonlyMap<string, number>} opIndex @param {Wiring} wired @returns {Int32Array} */
export function anchors({ ops }, opIndex, { outputStart, outputs, gradientOf, producer, consumerStart, consumers }) {
  return Int32Array.from(ops, (op, index) => {
    if (op.phase === "forward") return -1;
    const twin = op.twin === null ? -1 : (opIndex.get(op.twin) ?? -1);
    if (twin >= 0 && ops[twin]?.phase === "forward") return twin;
    for (let at = outputStart[index]; at < outputStart[index + 1]; at += 1) {
      const original = gradientOf[outputs[at]];
      if (original < 0 || producer[original] >= 0) continue;
      for (let reader = consumerStart[original]; reader < consumerStart[original + 1]; reader += 1) {
        const consumer = consumers[reader];
        if (ops[consumer].phase === "forward") return consumer;
      }
    }
    return -1;
  });
}

/** @param {Topology} topology @param {Wiring} wired @param {ReadonlyMap<string, number>} tensorIndex
 * @returns {Uint8Array} what layers put out, and what the model does: drawn even where nothing reads it */
export function results({ ops, tensors, layers }, { producer, consumerStart }, tensorIndex) {
  const isResult = new Uint8Array(tensors.length);
  for (const { preactivation, activation } of layers) {
    for (const id of [preactivation, activation]) {
      const tensor = tensorIndex.get(id ?? "");
      if (tensor !== undefined) isResult[tensor] = 1;
    }
  }
  tensors.forEach(({ role }, tensor) => {
    const isUnread = consumerStart[tensor] === consumerStart[tensor + 1];
    const isMade = ops[producer[tensor]]?.phase === "forward";
    if (role === "loss" || (isUnread && isMade && role !== "saved" && role !== "buffer")) isResult[tensor] = 1;
  });
  return isResult;
}
