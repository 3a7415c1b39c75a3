/** Lights lines of the source listings. */

/** Lights the given lines of a listing and no others. @param {string} name of the listing
 * @param {(text: string, number: number) => boolean} isLit by its text and its number in the file */
export function lightLines(name, isLit) {
  for (const line of document.querySelectorAll(`#listing-${CSS.escape(name)} .line`)) {
    const code = line.querySelector(".code")?.textContent ?? "";
    const isOld = line.classList.contains("old");
    line.classList.toggle("lit", !isOld && isLit(code, Number(line.getAttribute("data-line"))));
  }
}
