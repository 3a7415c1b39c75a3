"""The page of the backward pass: gradients with their code and derivation, shapes tried, and mse's traps."""

import pytest
from playwright.sync_api import expect


@pytest.fixture
def page(chapter):
    return chapter("backward")


def lit(page, listing):
    return [line.strip() for line in page.locator(f"#listing-{listing} .line.lit .code").all_text_contents()]


def test_a_gradient_shows_its_line_and_its_derivation(page):
    assert lit(page, "forward_and_backward") == ["mse_grad(out, targ)"]
    assert page.locator("button.gradient").count() == 8
    page.locator("button.gradient", has_text="w2.g").click()
    assert lit(page, "lin_grad") == ["accumulate(w, inp.t() @ out.g)"]
    assert lit(page, "forward_and_backward") == ["lin_grad(l2, out, w2, b2)"]
    expect(page.locator("#listing-mse_grad")).to_be_hidden()
    expect(page.locator("#derivation h3")).to_have_text("The linear layer, by its weight: w2.g")
    assert page.locator("#derivation math").count() == 4
    assert page.locator("#derivation munderover").count() == 1 + 2 + 1
    # An equation is as large as its text, in a browser that knows MathML.
    assert page.locator("#derivation math").last.bounding_box()["height"] > 20
    # It stays looked at when the numbers change.
    page.fill("#input-seed", "7")
    expect(page.locator("#loss")).not_to_have_text("loss = 2.37")
    assert lit(page, "lin_grad") == ["accumulate(w, inp.t() @ out.g)"]


def test_equal_sizes_leave_a_choice_that_shapes_cannot_make(page):
    expect(page.locator("#trials-w td.right")).to_have_count(1)
    expect(page.locator("#trials-w [data-fitting]")).to_have_attribute("data-fitting", "1")
    page.get_by_role("button", name="all sizes 4").click()
    expect(page.locator("#trials-w [data-fitting]")).to_have_attribute("data-fitting", "8")
    expect(page.locator("#trials-w [data-fitting]")).to_contain_text("only inp.t() @ out.g is the gradient")
    page.locator("#trials-w tr[data-code='out.g @ inp'] button").click()
    expect(page.locator("#trials-w .product-picture")).to_have_attribute(
        "aria-label", "out.g @ inp: (4, 4) @ (4, 4) gives (4, 4); w.g is (4, 4)"
    )
    expect(page.locator("#trials-w .product-picture .matrix.fits")).to_have_count(1)


def test_three_outputs_spring_the_trap(page):
    expect(page.locator("#squeeze-trap")).to_contain_text("(200, 200): 200 × 200 differences, and no error")
    page.fill("#input-n_out", "3")
    expect(page.locator("#divide-trap tbody tr").first.locator("td").last).to_have_text("3.00 ×")
    expect(page.locator("#divide-trap tbody tr").last).to_contain_text("another shape")
    assert page.url.endswith("?n_out=3")
