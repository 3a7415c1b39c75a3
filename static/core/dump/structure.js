/** Which graph a dump is of, in a few letters: dumps of one model at several steps have one and the same. No DOM. */

/** Names modules, ops, tensors and how they hang together. Types of numbers are no part of it: a model in float32 has
 * the structure that it has in bfloat16. @param {Pick<Topology, "modules" | "ops" | "tensors">} topology
 * @returns {string} the same for the same structure */
export function structureOf({ modules, ops, tensors }) {
  return fingerprint(JSON.stringify([
    modules.map(({ id, path, type, parent }) => [id, path, type, parent]),
    ops.map(({ id, name, phase, module, inputs, outputs, twin }) => [id, name, phase, module, inputs, outputs, twin]),
    tensors.map(
      ({ id, name, role, shape, module, producer, gradient_of }) => [id, name, role, shape, module, producer,
        gradient_of]
    ),
  ]));
}

/** Names everything that a picture is not asked for but its topology; how long ops took is different every time.
 * @param {Topology} topology */
export function topologyKey(topology) {
  return fingerprint(JSON.stringify({ ...topology, op_us: null }));
}

/** 53 bits of a text, mixed as by MurmurHash's last steps: two halves of 32 bits that each letter multiplies.
 * @param {string} text */
function fingerprint(text) {
  let [high, low] = [0xdeadbeef, 0x41c6ce57];
  for (let at = 0; at < text.length; at += 1) {
    const letter = text.charCodeAt(at);
    high = Math.imul(high ^ letter, 2654435761);
    low = Math.imul(low ^ letter, 1597334677);
  }
  high = Math.imul(high ^ (high >>> 16), 2246822507) ^ Math.imul(low ^ (low >>> 13), 3266489909);
  low = Math.imul(low ^ (low >>> 16), 2246822507) ^ Math.imul(high ^ (high >>> 13), 3266489909);
  return (4294967296 * (2097151 & low) + (high >>> 0)).toString(36);
}
