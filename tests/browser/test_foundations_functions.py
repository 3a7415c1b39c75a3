"""The page of custom Functions: boxes that are ticked off put None into what backward returns."""

import pytest
from playwright.sync_api import expect


@pytest.fixture
def page(chapter):
    return chapter("functions")


@pytest.mark.long
def test_a_gradient_that_is_not_needed_becomes_none(page):
    returned = page.locator('[data-group="returned"] .value')
    expect(returned).to_have_count(3)
    expect(returned.locator(".none")).to_have_count(0)
    page.uncheck("#input-x_requires_grad")
    expect(returned.nth(0).locator(".none")).to_have_text("None")
    expect(returned.nth(0)).to_contain_text("not needed, not computed")
    expect(returned.nth(1).locator("table")).to_be_visible()
    expect(page.locator("#context")).to_contain_text("ctx.needs_input_grad == (False, True, True)")
    assert "x_requires_grad=false" in page.url
    page.uncheck("#input-weight_requires_grad")
    page.uncheck("#input-bias_requires_grad")
    expect(page.locator("#count")).to_contain_text("backward was never called")


def test_two_outputs_bring_two_gradients_and_zeros_or_none_for_the_unused(page, server_url):
    page.get_by_role("button", name="two outputs, one used").click()
    received = page.locator('[data-group="got"] .value')
    expect(received).to_have_count(2)
    expect(page.locator("#count")).to_contain_text(
        "took 1 argument and returned 2 outputs, so backward got 2 gradients"
    )
    expect(received.nth(1)).to_contain_text("autograd made zeros")
    expect(page.locator("#input-weight")).to_be_hidden()
    expect(page.locator("#listing-sin_cos")).to_be_visible()
    page.uncheck("#input-materialize_grads")
    expect(received.nth(1).locator(".none")).to_have_text("None")
    expect(page.locator("#listing-sin_cos_sparing")).to_be_visible()
    answer = page.request.get(f"{server_url}/foundations/functions.json?{page.url.partition('?')[2]}").json()
    assert answer["backward"]["received"][1]["tensor"] is None
