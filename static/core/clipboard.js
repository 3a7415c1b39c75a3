/** Copying to the clipboard from a menu's button, which says how it went. */

const COPIED_MS = 1500;

/**
 * @param {HTMLButtonElement} button
 * @param {() => string | Promise<string>} text
 */
export async function copyFrom(button, text) {
  const label = button.textContent;
  button.disabled = true;
  try {
    await navigator.clipboard.writeText(await text());
    button.textContent = "Copied";
  } catch {
    // Only pages of a secure origin may write to the clipboard.
    button.textContent = "The browser does not let this page copy";
  }
  setTimeout(() => {
    button.textContent = label;
    button.disabled = false;
  }, COPIED_MS);
}
