"""Starting Chromium, for the browser tests and for screenshots.py."""

import os
import shutil
from pathlib import Path

from playwright.sync_api import Browser, Playwright

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome-stable", "google-chrome")

# A test machine may have no GPU, no user namespaces and no way out; the browser itself must not look for one.
ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--font-render-hinting=none",  # the headless shell would hint, and the letters of a window have other widths
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_chromium(playwright: Playwright) -> str:
    """Path of $CHAINRULE_CHROMIUM, of an installed Chromium or Chrome, or of Playwright's own.

    Raises:
        FileNotFoundError: no Chromium was found.
    """
    named = os.environ.get("CHAINRULE_CHROMIUM")
    candidates = [named] if named else [*NAMES, playwright.chromium.executable_path]
    for candidate in candidates:
        path = shutil.which(candidate)
        if path:
            return str(Path(path))
    raise FileNotFoundError(f"no Chromium: looked for {', '.join(candidates)}; CHAINRULE_CHROMIUM names one")


def launch(playwright: Playwright) -> Browser:
    """A headless Chromium."""
    return playwright.chromium.launch(executable_path=find_chromium(playwright), args=list(ARGUMENTS))
