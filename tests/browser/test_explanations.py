"""The marks of the default view explain themselves, to the pointer and to the keyboard."""

import pytest
from playwright.sync_api import expect


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


def test_the_help_says_what_the_page_shows(explorer):
    page = explorer.open().page
    page.keyboard.press("?")
    expect(page.locator("#help h2").first).to_have_text("What you see")
    page.locator("#help [data-term=saved-for-backward]").focus()
    expect(page.locator("#explanation")).to_contain_text("autograd keeps in memory")
