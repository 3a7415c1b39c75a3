"""The page of matrix multiplication: a race asked for rung by rung, and an element that shows its row and column."""

import re

import pytest
from playwright.sync_api import expect

RUNGS = ["loops", "elementwise", "broadcasting", "einsum", "@"]


@pytest.fixture
def page(chapter):
    return chapter("matmul?m=2&k=3&n=4")


def lit(page, table):
    cells = page.locator("#window figure").nth(table).locator("td[class^=lit]")
    return [cell.get_attribute("data-index") for cell in cells.all()]


def test_an_element_lights_its_row_and_its_column(page, server_url):
    window = page.request.get(f"{server_url}/foundations/matmul.json?m=2&k=3&n=4&rungs=@").json()["window"]
    page.locator('#window figure:last-of-type td[data-index="1,2"]').hover()
    assert lit(page, 0) == ["1,0", "1,1", "1,2"]
    assert lit(page, 1) == ["0,2", "1,2", "2,2"]
    assert lit(page, 2) == ["1,2"]
    expect(page.locator("#listing-loops .line.lit")).to_have_count(1)
    expect(page.locator("#listing-loops .line.lit")).to_contain_text("c[i, j] += a[i, k] * b[k, j]")
    said = page.locator("#element").text_content().replace("−", "-")
    factors = [float(each) for each in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", said)]
    row, column = window["a"]["values"][1], [line[2] for line in window["b"]["values"]]
    expected = [each for pair in zip(row, column, strict=True) for each in pair]
    assert factors == pytest.approx([*expected, window["c"]["values"][1][2]], rel=5e-3)
    page.locator('#window figure:last-of-type td[data-index="1,2"]').press("ArrowLeft")
    assert lit(page, 1) == ["0,1", "1,1", "2,1"]


def let_go(page, held):
    """Answers the request that is held, as soon as it is: the page says what runs before it asks."""
    while not held:
        page.wait_for_timeout(10)
    held.pop().continue_()


def test_sizes_start_another_race_and_rungs_appear_one_by_one(page):
    held = []
    page.route(re.compile("rungs=(loops|broadcasting)"), lambda route: held.append(route))
    page.fill("#input-k", "7")
    rows = page.locator("#race [data-rung]")
    # Before anything has run.
    expect(page.locator("#race-state")).to_have_text("1 of 5: loops")
    expect(rows).to_have_text(["loopsruns now …", *(f"{name}waits" for name in RUNGS[1:])])
    expect(page.locator("#race-progress")).to_have_js_property("value", 0)
    let_go(page, held)
    expect(page.locator("#race-state")).to_have_text("3 of 5: broadcasting")
    speedup = rows.nth(1).locator(".speedup").text_content()
    expect(rows.nth(1)).to_contain_text("✓")
    expect(rows.nth(2)).to_contain_text("runs now")
    expect(rows.nth(4)).to_contain_text("waits")
    expect(page.locator("#race-progress")).to_have_js_property("value", 2)
    let_go(page, held)
    expect(page.locator("#race-state")).to_have_text("5 of 5 done")
    assert [row.get_attribute("data-rung") for row in rows.all()] == RUNGS
    for row in rows.all():
        expect(row.locator(".time")).to_contain_text(re.compile(r"\d (µs|ms|s)"))
        expect(row.locator(".check")).to_contain_text("✓")
    expect(rows.nth(0).locator(".speedup")).to_have_text("1×")
    expect(rows.nth(1).locator(".speedup")).to_have_text(speedup)
    marked = page.locator(".listing .line").filter(has_text="c[i, j] = (a[i] * b[:, j]).sum()")
    assert [line.evaluate("line => getComputedStyle(line).backgroundColor") for line in marked.all()].count(
        "rgba(0, 0, 0, 0)"
    ) == 1  # as a comment; as the new line it is marked
    expect(rows.nth(0).locator(".printed")).to_have_text("325 ms")
    expect(page.locator("#window")).to_contain_text("a is 2 × 7, b is 7 × 4, c is 2 × 4: 56 multiplications")


@pytest.mark.long
def test_loops_that_would_take_too_long_say_so(page, server_url):
    answers = []
    page.on("response", lambda response: answers.append(response) if "matmul.json" in response.url else None)
    # Minutes for the loops, milliseconds for @: no machine is so busy that the one would run or the other would not.
    page.goto(f"{server_url}/foundations/matmul?m=512&k=512&n=256")
    expect(page.locator("#race-state")).to_have_text("5 of 5 done")
    loops = page.locator('#race [data-rung="loops"]')
    expect(loops).to_contain_text(re.compile(r"did not run: it would take about [\d.]+ (hours|minutes), and \S+ s are"))
    expect(page.locator('#race [data-rung="@"] .check')).to_contain_text("✓")
    expect(page.locator("#race-notes")).to_contain_text("speed-ups are over what they are estimated to take")
    # Every answer estimates the loops anew; the page compares all rungs with the first estimate.
    first, *_, last = [answer.json() for answer in answers]
    expected = first["baseline"]["seconds"] / last["rungs"][0]["seconds"]
    said = page.locator('#race [data-rung="@"] .speedup').text_content().removesuffix("×").replace(",", "")
    assert float(said) == pytest.approx(expected, rel=5e-3)
    race = page.locator("#race").text_content()
    page.fill("#input-k", "0")
    expect(page.locator("#input-k-note")).to_contain_text("k: '0' is not an integer from 1 to 1024")
    assert page.locator("#race").text_content() == race  # nothing runs
    expect(page.locator("#race-state")).to_have_text("5 of 5 done")
    page.fill("#input-k", "5")
    expect(page.locator("#input-k-note")).to_be_empty()
