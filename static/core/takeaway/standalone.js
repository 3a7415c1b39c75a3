/** The page as one file that opens without a server: a shell from the server, filled with what is on the screen. */

const DATA = /(<script type="application\/json" id="page-data">)[^<]*(<\/script>)/;

/** @param {string} shell the page with everything in it but data, from `/standalone.html` @param {PageData} pageData
 * with the dump itself in it: `dump.content` @returns {string} an HTML document @throws {Error} the shell has no place
 * for data */
export function standaloneHtml(shell, pageData) {
  if (!DATA.test(shell)) throw new Error("the page's shell has no place for its data");
  // Nothing in the data can end the script, whatever names are in it.
  const json = JSON.stringify(pageData).replaceAll("<", "\\u003c");
  return shell.replace(DATA, (_, before, after) => before + json + after);
}
