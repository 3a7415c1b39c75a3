"""The page of einsum: each index explained, an element lights what makes it, and what is wrong is pointed at."""

import re

import pytest
from playwright.sync_api import expect

CALLS = {
    "matrix product": ("ik,kj->ij", "(5, 10)"),
    "transpose": ("ij->ji", "(2, 2)"),
    "x·y·z per row": ("bi,ij,bj->b", "(2,)"),
    "trace": ("ii", "()"),
    "diagonal": ("ii->i", "(2,)"),
    "outer product": ("i,j->ij", "(3, 2)"),
    "batch product": ("bij,bjk->bik", "(3, 2, 4)"),
    "batch permute": ("...ij->...ji", "(2, 3, 5, 4)"),
    "bilinear": ("bn,anm,bm->ba", "(2, 3)"),
    "batch product, as sublists": (None, "(3, 2, 4)"),
}


@pytest.fixture
def page(chapter):
    return chapter("einsum")


def test_an_equation_is_typed_and_an_element_lights_what_makes_it(page):
    page.fill("#input-equation", "ij,kj->ki")
    page.fill("#input-shapes", "2,3;4,3")
    expect(page.locator("#indices tbody th")).to_have_text(["k", "i", "j"])
    expect(page.locator("#indices td .role")).to_have_text(["kept", "kept", "summed"])
    expect(page.locator("#written-loops")).to_contain_text("out[k, i] += t0[i, j] * t1[k, j]")
    expect(page.locator("#agreement")).to_contain_text("Loops and torch.einsum agree")
    expect(page.locator("#sublist-call")).to_have_text("torch.einsum(t0, [0, 1], t1, [2, 1], [2, 0])")
    page.locator('#operands .result td[data-index="3,1"]').hover()
    lit = page.locator("#operands td.lit, #operands td.lit-2")
    assert lit.evaluate_all("cells => cells.map(cell => cell.dataset.index)") == [
        "1,0",
        "1,1",
        "1,2",
        "3,0",
        "3,1",
        "3,2",
    ]
    said = page.locator("#element").inner_text().replace("−", "-")
    products, value = re.fullmatch(r"out\[3, 1\] = Σ j +t0\[1, j\] · t1\[3, j\] = (.*) = ([-.\de]+)", said).groups()
    terms = [[float(each.strip("()")) for each in term.split(" · ")] for term in products.split(" + ")]
    assert len(terms) == 3
    assert sum(a * b for a, b in terms) == pytest.approx(float(value), abs=0.02)


def test_the_chapters_calls_are_one_click_each(page):
    buttons = page.get_by_role("group", name="The chapter's calls").get_by_role("button")
    expect(buttons).to_have_count(len(CALLS))
    for name, (equation, shape) in CALLS.items():
        page.get_by_role("button", name=name, exact=True).click()
        if equation is not None:
            expect(page.locator("#input-equation")).to_have_value(equation)
        expect(page.locator("#operands .result figcaption .soft")).to_have_text(shape)
        expect(page.locator("#failure")).to_be_empty()
    expect(page.locator("#anatomy")).to_contain_text("The sublists say ...AB,...BC->...AC")
    page.fill("#input-equation", "bij,bjk")
    expect(page.locator("#input-sublists")).to_have_value("")
    expect(page.locator("#anatomy")).to_contain_text("the output is implicit: ik. With an arrow it is bij,bjk->ik.")
    expect(page.locator("#chapter-rules li")).to_contain_text(["Followed.", "Followed.", "Followed."])
    page.fill("#input-equation", "bij,bjk->bi")
    expect(page.locator("#chapter-rules li")).to_have_text(
        [
            "“Repeated indices are implicitly summed over.” Broken: b is repeated, and yet kept in the output.",
            "“Each index can appear at most twice in any term.” Followed.",
            "“Each term must contain identical non-repeated indices.” Broken: k is not repeated, and yet summed.",
        ]
    )


def test_what_is_wrong_is_pointed_at_and_can_be_mended(page):
    page.fill("#input-equation", "bij,bjk->biz")
    expect(page.locator("#failure .caret")).to_have_text("bij,bjk->biz\n           ^")
    expect(page.locator("#failure")).to_contain_text("'z' is in the output, but in no operand")
    expect(page.locator("#failure")).to_contain_text("output subscript z does not appear")
    expect(page.locator("#input-equation")).to_have_attribute("aria-invalid", "true")
    page.fill("#input-equation", "ij,jk")
    expect(page.locator("#failure")).to_contain_text("Operand 0 has 3 dimensions, but 2 indices")
    page.get_by_role("button", name="Take shapes that fit").click()
    expect(page.locator("#failure")).to_be_empty()
    expect(page.locator("#input-shapes")).to_have_value("2,3;3,4")
    expect(page.locator("#input-shapes")).to_be_focused()
    expect(page.locator("#operands .result figcaption .soft")).to_have_text("(2, 4)")
    page.fill("#input-sublists", "[0, 1], [1, 99]")
    expect(page.locator("#failure")).to_contain_text("'99' is neither `...` nor a number from 0 to 51")
    expect(page.locator("#input-sublists")).to_have_attribute("aria-invalid", "true")
