/** How numbers are written, everywhere alike: three significant digits, 1.02 and 2.46e-8. */

/** Three significant digits; "–" where there is no number. @param {number | null | undefined} value */
export function significant(value) {
  return rounded(value, 3);
}

/** The values of a tensor, written alike: whole numbers without digits after the point.
 * @param {readonly number[]} values @param {number} digits significant @returns {string[]} */
export function numerals(values, digits) {
  const areWhole = values.every((value) => Number.isInteger(value) && Math.abs(value) < 1e4);
  return values.map((value) => areWhole ? String(value).replace("-", "−") : rounded(value, digits));
}

/** Plain between 0.001 and 9999, with an exponent outside. @param {number | null | undefined} value
 * @param {number} digits significant, 1 to 100 */
function rounded(value, digits) {
  if (value === null || value === undefined) return "–";
  if (Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const magnitude = Number(Math.abs(value).toPrecision(digits));
  const sign = value < 0 ? "−" : "";
  if (magnitude >= 1e-3 && magnitude < 1e4)
    return sign + (magnitude < 10 ** digits ? magnitude.toPrecision(digits) : String(magnitude));
  return sign + magnitude.toExponential(digits - 1).replace("e+", "e");
}

/** @param {Float64Array | undefined} column @param {number | undefined} row
 * @returns {number | null} the value; null for a missing one */
export function valueAt(column, row) {
  const value = row === undefined ? undefined : column?.[row];
  return value === undefined || Number.isNaN(value) ? null : value;
}

/** @param {Picture} picture @param {number | undefined} row
 * @returns {boolean} whether the figures of the row wait for a guess */
export function isHidden(picture, row) {
  return row !== undefined && picture.hidden !== null && picture.hidden.rows.has(row);
}

/** A figure of a picture as it is shown: "?" where it waits for a guess.
 * @param {Picture} picture @param {Float64Array} column @param {number | undefined} row */
export function figureAt(picture, column, row) {
  return isHidden(picture, row) ? "?" : significant(valueAt(column, row));
}

/** @param {number} value @returns {string} 10,000 */
export function count(value) {
  return String(value).replace(/\B(?=(\d{3})+$)/g, ",");
}

const PREFIXES = ["", "k", "M", "G", "T", "P"];

/** A large count with an SI prefix: 2.02 M. @param {number} value @param {string} unit @returns {string} */
export function quantity(value, unit) {
  let step = 0;
  let scaled = value;
  while (scaled >= 1000 && step < PREFIXES.length - 1) {
    scaled /= 1000;
    step += 1;
  }
  const digits = step === 0 ? String(scaled) : scaled.toPrecision(3);
  return `${digits} ${PREFIXES[step]}${unit}`;
}

/** A time in the unit that suits it: 12.3 µs, 4.56 ms. @param {number} microseconds @returns {string} */
export function duration(microseconds) {
  if (microseconds < 1000) return `${significant(microseconds)} µs`;
  return microseconds < 1e6 ? `${significant(microseconds / 1e3)} ms` : `${significant(microseconds / 1e6)} s`;
}

/** @param {number | null} fraction 0 to 1 @returns {string} 12.3 % */
export function percent(fraction) {
  if (fraction === null) return "–";
  if (fraction > 0 && fraction < 0.001) return "< 0.1 %";
  if (fraction < 1 && fraction > 0.999) return "> 99.9 %";
  return `${(fraction * 100).toFixed(fraction === 0 || fraction === 1 ? 0 : 1)} %`;
}

/** A relative error: 3.1 %; below a millionth a power of ten. @param {number | null} error */
export function relativeError(error) {
  if (error === null) return "–";
  return error > 0 && error < 1e-6 ? error.toExponential(1) : `${Number((100 * error).toPrecision(2))} %`;
}

/** @param {readonly number[]} sizes @returns {string} 200 × 50, or "scalar" */
export function shape(sizes) {
  return sizes.length === 0 ? "scalar" : sizes.join(" × ");
}

/** The shortest text that reads back as the same number, 0.1 or 1e9. @param {number} value */
export function setting(value) {
  const plain = String(value).replace("e+", "e");
  const short = value.toExponential().replace("e+", "e");
  return plain.length > 7 && short.length < plain.length ? short : plain;
}

/** @param {string} text @param {(line: string) => boolean} fits @returns {string[]} lines, broken after spaces and commas */
export function wrapped(text, fits) {
  const lines = [""];
  for (const word of text.split(/(?<=[ ,])/)) {
    const line = lines.pop() ?? "";
    if (line === "" || fits(line + word)) lines.push(line + word);
    else lines.push(line, word);
  }
  return lines;
}
