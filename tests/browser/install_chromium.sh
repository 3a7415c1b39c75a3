#!/bin/sh
# Makes sure that the browser tests have a Chromium and prints its path; everything else goes to stderr.
#
#   install_chromium.sh PYTHON     PYTHON: an interpreter that has playwright
#
# In this order: $CHAINRULE_CHROMIUM; one that is installed; Playwright's own, downloaded before; Debian's package (as
# root); Playwright's own, downloaded now.
set -u
python=$1

found() {
    echo "$1"
    exit 0
}

playwrights_own() {
    "$python" -c '
import sys
from pathlib import Path
from playwright.sync_api import sync_playwright
with sync_playwright() as playwright:
    path = playwright.chromium.executable_path
print(path)
sys.exit(not Path(path).exists())' 2>/dev/null
}

installed() {
    for name in chromium-headless-shell chromium chromium-browser google-chrome google-chrome-stable; do
        command -v "$name" && return
    done
    mac="/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
    [ -x "$mac" ] && echo "$mac"
}

if [ -n "${CHAINRULE_CHROMIUM:-}" ]; then
    path=$(command -v "$CHAINRULE_CHROMIUM") && found "$path"
    echo "CHAINRULE_CHROMIUM names '$CHAINRULE_CHROMIUM', which is not a program." >&2
    exit 1
fi

path=$(installed) && found "$path"
path=$(playwrights_own) && found "$path"

echo "No Chromium or Chrome found for the browser tests: installing one ..." >&2
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    apt-get update -q >&2
    # The headless shell is the same browser without windows; it needs a sixth less time for the tests.
    for package in chromium-headless-shell chromium; do
        DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $package >&2 &&
            path=$(installed) && found "$path"
    done
fi
"$python" -m playwright install chromium >&2 && path=$(playwrights_own) && found "$path"

echo "The browser tests need Chromium or Chrome, and none could be installed. Install one, or name one in CHAINRULE_CHROMIUM." >&2
exit 1
