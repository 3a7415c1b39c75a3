"""The page of the C++ extension: it says whether it is built, and races what is there."""

import re

from playwright.sync_api import expect


def test_the_state_is_said_and_other_sizes_race_again(chapter, server_url):
    page = chapter("extension")
    state = page.request.get(f"{server_url}/foundations/extension.json").json()["state"]
    rows = page.locator("#race [data-style]")
    expect(rows).to_have_count(4)
    cpp = page.locator('[data-style="LinearCpp"]')
    if state["built"]:
        expect(page.locator("#state")).to_contain_text("It is built")
        expect(cpp.locator(".bar")).to_have_count(2)
        expect(page.locator("#check")).to_contain_text("On the CPU, in float64")
        expect(page.locator("#check")).to_contain_text("the gradient check passes")
    else:
        expect(page.locator("#state")).to_contain_text("chainrule build-extension")
        expect(page.locator("#state")).to_contain_text("C++ compiler")
        expect(cpp).to_contain_text("not built")
    expect(page.locator('[data-style="F.linear"] .times')).to_have_text(re.compile(r"^[\d.]+ [µm]s$"))
    page.fill("#input-batch", "2")
    page.fill("#input-fan_in", "3")
    page.fill("#input-fan_out", "5")
    expect(page.locator("#race-note")).to_contain_text("30 multiplications")
    page.fill("#input-batch", "257")
    expect(page.locator("#input-batch-note")).to_contain_text("an integer from 1 to 256")
    expect(page.locator('[id="listing-linear.cpp"]')).to_contain_text("PYBIND11_MODULE")
