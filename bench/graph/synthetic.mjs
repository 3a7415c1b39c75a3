/**
 * Topologies as large as anybody's: a transformer of nested blocks, each op with its backward, residuals, parameters
 * and what is saved. No two blocks need be alike: every third has a gate more.
 */

class Recording {
  /** @type {Topology} */
  topology = { schema: "chainrule.trace/1", modules: [], ops: [], tensors: [], saved: [], layers: [], statistics: { tensor: [] }, sources: {}, op_us: null };
  /** What to run backward: op, inputs with gradients, output. @type {{op: string, name: string, module: string, inputs: string[], output: string}[]} */
  #tape = [];
  /** @type {Map<string, Tensor>} */
  #tensors = new Map();

  /** @param {string} path @param {string} type @param {string | null} parent @returns {string} */
  module(path, type, parent) {
    const id = `m${this.topology.modules.length}`;
    this.topology.modules.push({ id, path, type, parent });
    return id;
  }

  /** @param {string} name @param {string} role @param {string} module @param {string | null} producer @param {string | null} gradientOf @param {number[]} shape */
  tensor(name, role, module, producer = null, gradientOf = null, shape = [4, 128, 256]) {
    const id = `t${this.topology.tensors.length}`;
    const tensor = { id, name, role, shape, dtype: "float32", module, producer, consumers: [], gradient_of: gradientOf, note: null };
    this.topology.tensors.push(tensor);
    this.#tensors.set(id, tensor);
    return id;
  }

  /** @param {string} name @param {"forward" | "backward"} phase @param {string} module @param {string[]} inputs @param {string | null} twin */
  #op(name, phase, module, inputs, twin) {
    const id = `n${this.topology.ops.length}`;
    this.topology.ops.push({ id, name, phase, module, attributes: {}, inputs, outputs: [], twin, flops: 0, bytes: 0, source: null });
    for (const input of inputs) this.#tensors.get(input)?.consumers.push(id);
    return id;
  }

  /** @param {string} id @param {string} tensor */
  #put(id, tensor) {
    this.topology.ops[Number(id.slice(1))]?.outputs.push(tensor);
    return tensor;
  }

  /** @param {string} name @param {string} module @param {string[]} inputs @param {string} role @returns {string} the output */
  forward(name, module, inputs, role = "intermediate") {
    const op = this.#op(name, "forward", module, inputs, null);
    const shape = role === "loss" ? [] : [4, 128, 256];
    const output = this.#put(op, this.tensor(`${op}.${name}`, role, module, op, null, shape));
    this.topology.saved.push({ tensor: inputs[0] ?? output, op });
    this.#tape.push({ op, name, module, inputs, output });
    return output;
  }

  backward() {
    /** Tensor → its gradient, or the parts of it. @type {Map<string, string[]>} */
    const gradients = new Map();
    for (const { op, name, module, inputs, output } of this.#tape.reverse()) {
      let own = gradients.get(output) ?? [];
      if (own.length > 1) {
        const sum = this.#op("accumulate", "backward", module, own, op);
        own = [this.#put(sum, this.tensor(`${output}.g`, "gradient", module, sum, output))];
      }
      const from = own[0] ?? this.tensor(`${output}.g`, "gradient", module, null, output, []);
      const back = this.#op(`${name}Backward`, "backward", module, [from], op);
      for (const input of inputs) {
        const tensor = this.#tensors.get(input);
        if (tensor === undefined || tensor.role === "input" || tensor.role === "target") continue;
        const isShared = tensor.consumers.filter((reader) => this.topology.ops[Number(reader.slice(1))]?.phase === "forward").length > 1;
        const part = this.tensor(`${input}.g of ${back}`, "gradient", module, back, isShared ? null : input);
        this.#put(back, part);
        gradients.set(input, [...(gradients.get(input) ?? []), part]);
      }
    }
  }
}

/**
 * @param {number} blocks of about 180 boxes each
 * @param {number} perStage
 * @returns {Topology}
 */
export function synthetic(blocks, perStage = 8) {
  const recording = new Recording();
  const root = recording.module("", "Transformer", null);
  let x = recording.tensor("x", "input", root);
  let stage = root;
  for (let index = 0; index < blocks; index += 1) {
    const stagePath = `stages.${Math.floor(index / perStage)}`;
    if (index % perStage === 0) stage = recording.module(stagePath, "Stage", root);
    x = block(recording, x, `${stagePath}.blocks.${index % perStage}`, stage, index);
  }
  const loss = recording.module("loss", "Mse", root);
  const target = recording.tensor("y", "target", loss);
  recording.forward("mse_loss", loss, [x, target], "loss");
  recording.backward();
  return recording.topology;
}

/** @param {Recording} recording @param {string} x @param {string} path @param {string} parent @param {number} index @returns {string} */
function block(recording, x, path, parent, index) {
  const module = recording.module(path, "Block", parent);
  const attention = recording.module(`${path}.attention`, "Attention", module);
  const feed = recording.module(`${path}.feed`, "FeedForward", module);
  /** @param {string} name @param {string} around @param {string} input */
  const linear = (name, around, input) => {
    const own = recording.module(`${path}.${name}`, "Linear", around);
    const product = recording.forward("matmul", own, [input, recording.tensor(`${path}.${name}.weight`, "parameter", own)]);
    return recording.forward("add", own, [product, recording.tensor(`${path}.${name}.bias`, "parameter", own)]);
  };
  /** @param {string} name @param {string} input */
  const norm = (name, input) => {
    const own = recording.module(`${path}.${name}`, "LayerNorm", module);
    const mean = recording.forward("mean", own, [input]);
    const centred = recording.forward("sub", own, [input, mean]);
    const scaled = recording.forward("mul", own, [centred, recording.tensor(`${path}.${name}.weight`, "parameter", own)]);
    return recording.forward("add", own, [scaled, recording.tensor(`${path}.${name}.bias`, "parameter", own)]);
  };
  const normed = norm("norm1", x);
  const [query, key, value] = ["query", "key", "value"].map((name) => recording.forward("transpose", attention, [linear(`attention.${name}`, attention, normed)]));
  const scores = recording.forward("softmax", attention, [recording.forward("matmul", attention, [query ?? x, key ?? x])]);
  const mixed = recording.forward("reshape", attention, [recording.forward("matmul", attention, [scores, value ?? x])]);
  const attended = recording.forward("add", module, [x, linear("attention.out", attention, mixed)]);
  const second = norm("norm2", attended);
  let hidden = recording.forward("gelu", feed, [linear("feed.up", feed, second)]);
  if (index % 3 === 0) hidden = recording.forward("mul", feed, [hidden, linear("feed.gate", feed, second)]);
  return recording.forward("add", module, [attended, linear("feed.down", feed, hidden)]);
}
