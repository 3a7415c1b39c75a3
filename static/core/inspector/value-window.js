/** Which part of a tensor's values is asked for, and how it lies on the screen: rows by columns. No DOM. */

import { tensorPath } from "../api.js";

/** As many rows and columns as the server gives at once. */
export const MAX_VALUES = 64;
/** Values behind one row and column of a tensor of more dimensions. */
const MAX_CELLS = 4096;

/**
 * The window that begins at a row and a column.
 * @param {readonly number[]} shape @param {number} row @param {number} column
 * @returns {ValueWindow | null} null where even one row and column hold more values than a screen
 */
export function windowAt(shape, row, column) {
  const [height = 1, width = 1, ...rest] = shape;
  const behind = rest.reduce((product, size) => product * size, 1);
  if (behind > MAX_CELLS) return null;
  const columns = Math.max(1, Math.min(MAX_VALUES, Math.floor(MAX_CELLS / behind)));
  const rows = Math.max(1,
    Math.min(MAX_VALUES, Math.floor(MAX_CELLS / (behind * Math.min(columns, Math.max(1, width))))));
  const [first, left] = [Math.min(row, Math.max(0, height - 1)), Math.min(column, Math.max(0, width - 1))];
  return { rows: [first, Math.max(first + 1, Math.min(first + rows, height))],
    cols: [left, Math.max(left + 1, Math.min(left + columns, width))] };
}

/**
 * @param {Spec} spec
 * @param {string} name of the tensor
 * @param {ValueWindow} part
 * @returns {string} where its values are
 */
export function valuesPath(spec, name, { rows, cols }) {
  const query = new URLSearchParams(Object.entries(spec).map(([key, value]) => [key, String(value)]));
  query.set("name", name);
  query.set("rows", rows.join(":"));
  query.set("cols", cols.join(":"));
  return tensorPath(query.toString());
}

/**
 * Values as they are laid out: the last dimension runs along a row, all others down the rows.
 * @param {unknown} values numbers as the server nests them
 * @param {readonly number[]} shape of the whole tensor
 * @param {ValueWindow} part
 */
export function cellsOf(values, shape, { rows, cols }) {
  const flat = /** @type {JsonNumber[]} */ (Array.isArray(values) ? values.flat(Infinity) : [values]);
  const sizes = shape.map((size, axis) =>
    axis === 0 ? Math.min(rows[1], size) - rows[0] : axis === 1 ? Math.min(cols[1], size) - cols[0] : size
  );
  const columns = sizes.at(-1) ?? 1;
  return {
    rows: columns === 0 ? 0 : flat.length / columns,
    columns,
    values: Float64Array.from(flat, (value) => value === null ? NaN : Number(value)),
    /** @param {number} cell */
    index(cell) {
      let rest = cell;
      const place = [];
      for (let axis = sizes.length - 1; axis >= 0; axis -= 1) {
        place.unshift((rest % (sizes[axis] ?? 1)) + (axis === 0 ? rows[0] : axis === 1 ? cols[0] : 0));
        rest = Math.floor(rest / (sizes[axis] ?? 1));
      }
      return `[${place.join(", ")}]`;
    },
  };
}
