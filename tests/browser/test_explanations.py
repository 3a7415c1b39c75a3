"""The marks of the default view explain themselves, to the pointer and to the keyboard."""

import pytest
from playwright.sync_api import expect


@pytest.mark.long
@pytest.mark.parametrize("how", ["hover", "focus"])
def test_a_mark_of_the_profile_is_explained(explorer, how):
    page = explorer.open().page
    shown = page.locator("#explanation")
    expect(shown).to_be_hidden()
    mark = page.locator("layer-profile [data-term=band]")
    getattr(mark, how)()
    expect(shown).to_contain_text("19 of 20 random draws")
    expect(mark).to_have_attribute("aria-describedby", "explanation")
    page.keyboard.press("Escape")
    expect(shown).to_be_hidden()


MARKS = (
    "saved-for-backward std mean dead-fraction saturation gradient-to-weight gain preactivation activation theory band"
)


@pytest.mark.long
def test_every_mark_of_the_default_view_is_reached_by_the_keyboard(explorer):
    page = explorer.open().page
    seen = set()
    page.locator(".skip-link").focus()
    for _ in range(200):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("document.activeElement?.getAttribute('data-term')"))
        if seen >= set(MARKS.split()):
            break
    assert seen >= set(MARKS.split())


def test_the_help_says_what_the_page_shows(explorer):
    page = explorer.open().page
    page.keyboard.press("?")
    expect(page.locator("#help h2").first).to_have_text("What you see")
    page.locator("#help [data-term=saved-for-backward]").focus()
    expect(page.locator("#explanation")).to_contain_text("autograd keeps in memory")
