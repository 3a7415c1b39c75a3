"""Wait until the page is idle."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

UNTIL_IDLE = """() => new Promise((resolve, reject) => {
  const { body } = document;
  // What an event has started, such as a change of the fragment or of the size, has begun by the end of the next frame.
  requestAnimationFrame(() => setTimeout(() => {
    const observer = new MutationObserver(() => look());
    const patience = setTimeout(() => reject(new Error("the page does not become idle")), 60_000);
    const look = () => {
      if (!body.hasAttribute("data-idle")) return;
      observer.disconnect();
      clearTimeout(patience);
      resolve();
    };
    observer.observe(body, { attributeFilter: ["data-idle"] });
    look();
  }));
})"""


def idle(page: Page) -> None:
    """Wait until the page works on nothing: no answer, drawing or timer is outstanding (`static/core/activity.js`)."""
    page.evaluate(UNTIL_IDLE)


def next_frame(page: Page) -> None:
    page.evaluate("() => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)))")


def expect_when_idle(page: Page, condition: str, argument: Any = None) -> None:
    """Wait until the page is idle, then check that a JavaScript function or expression is true."""
    idle(page)
    assert page.evaluate(condition, argument), f"{condition}: {argument}; at {page.url}"
