/** The page as one file that opens without a server: the server's shell, filled with the present data. */

const DATA = /(<script type="application\/json" id="page-data">)[^<]*(<\/script>)/;

/** @param {string} shell the page without data, from `/standalone.html` @param {PageData} pageData pageData includes
 * `dump.content` @returns {string} an HTML document @throws {Error} if the shell has no place for data */
export function standaloneHtml(shell, pageData) {
  if (!DATA.test(shell)) throw new Error("the page's shell has no place for its data");
  // Escaped, so that no name in the data can end the script.
  const json = JSON.stringify(pageData).replaceAll("<", "\\u003c");
  return shell.replace(DATA, (_, before, after) => before + json + after);
}
