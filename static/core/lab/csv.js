/** Tables as comma-separated values (RFC 4180), and files for the browser to save. */

const REVOKE_MS = 10_000;

/** @param {readonly (readonly (string | number)[])[]} table
 * @returns {string} numbers with as many digits as read back as the same number */
export function csv(table) {
  return table.map((line) => `${line.map(cell).join(",")}\r\n`).join("");
}

/** How a text begins that a spreadsheet would run, unless it is a number. */
const FORMULA = /^(?:[=@\t\r\n]|[-+](?![\d.]+(?:e[-+]?\d+)?$|Infinity$))/;

/** @param {string | number} value @returns {string} */
function cell(value) {
  const text = typeof value === "string" && FORMULA.test(value) ? `'${value}` : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** @param {string} name @param {string | Blob} content @param {string} type */
export function saveFile(name, content, type) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  // Browsers open it after the click, some not at once.
  setTimeout(() => URL.revokeObjectURL(address), REVOKE_MS);
}
