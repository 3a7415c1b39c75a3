"""Every page of the chapter: the newest answer wins, the address holds the inputs, errors stand in place."""

import re
import threading

import pytest
from playwright.sync_api import expect
from waiting import idle


@pytest.fixture
def page(chapter):
    return chapter("einsum?equation=ij->ji&shapes=2,3")


def shape(page):
    """The shape of the result, as the page writes it."""
    return page.locator("#operands .tensor figcaption .soft").last


@pytest.mark.long
def test_of_two_answers_out_of_order_the_newer_stays(page):
    held, go = threading.Event(), []

    def hold(route):
        # The first request is answered after the second one.
        if not held.is_set():
            held.set()
            go.append(route)
        else:
            route.continue_()

    expect(shape(page)).to_have_text("(3, 2)")
    page.route("**/foundations/einsum.json*", hold)
    with page.expect_request("**/foundations/einsum.json*"):
        page.fill("#input-shapes", "4,5")
    page.fill("#input-shapes", "6,7")
    expect(shape(page)).to_have_text("(7, 6)")
    if go:
        # The page gave it up, so there may be nobody to answer any more.
        go[0].abort()
    idle(page)
    expect(shape(page)).to_have_text("(7, 6)")


@pytest.mark.long
def test_the_address_is_the_page_and_its_history(page):
    page.get_by_role("button", name="trace").click()
    expect(page.locator("#input-equation")).to_have_value("ii")
    page.get_by_role("button", name="outer product").click()
    expect(shape(page)).to_have_text("(3, 2)")
    assert "equation=i%2Cj-%3Eij" in page.url
    page.go_back()
    expect(page.locator("#input-equation")).to_have_value("ii")
    expect(shape(page)).to_have_text("()")
    page.go_back()
    expect(page.locator("#input-equation")).to_have_value("ij->ji")
    expect(page.locator("a[data-answer]")).to_have_attribute("href", re.compile(r"equation=ij-%3Eji"))
    page.reload()
    expect(shape(page)).to_have_text("(3, 2)")


def test_an_error_stands_at_its_input_and_what_was_shown_stays(page):
    page.fill("#input-seed", "x")
    note = page.locator("#input-seed-note")
    expect(note).to_contain_text("seed: 'x' is not an integer")
    expect(page.locator("#input-seed")).to_have_attribute("aria-invalid", "true")
    expect(shape(page)).to_have_text("(3, 2)")
    assert page.evaluate("document.body.hasAttribute('data-stale')")
    # As a link it opens with what was typed and the same words.
    page.reload()
    expect(page.locator("#input-seed")).to_have_value("x")
    expect(note).to_contain_text("seed: 'x' is not an integer")
    page.fill("#input-seed", "3")
    expect(note).to_be_empty()
    expect(shape(page)).to_have_text("(3, 2)")
    assert not page.evaluate("document.body.hasAttribute('data-stale')")
    # Cells are walked with the keyboard.
    result = page.locator("#operands .tensor").last
    result.locator('td[data-index="0,0"]').focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    expect(result.locator('td[data-index="1,1"]')).to_be_focused()
    expect(page.locator("#operands td.lit, #operands td.lit-2").first).to_be_visible()


@pytest.mark.long
def test_what_is_wrong_in_an_address_is_said_until_it_is_edited(page, explorer):
    page.goto(f"{explorer.url}/foundations/einsum?shapes=2,3;3,4&bogus=1")
    expect(page.locator("#page-error")).to_contain_text("bogus: unknown key; the keys of this page")
    page.wait_for_function("document.body.dataset.error === 'invalid_input'")
    page.fill("#input-equation", "ij,jk->ki")
    expect(shape(page)).to_have_text("(4, 2)")
    expect(page.locator("#page-error")).to_be_hidden()
    assert "bogus" not in page.url


def test_moves_within_the_page_ask_for_nothing_and_leave_no_trace(page, explorer):
    asked = []
    explorer.spend().on("request", lambda request: asked.append(request.url))
    page.evaluate("location.hash = '#chapter'")
    page.go_back()
    length = page.evaluate("history.length")
    for _ in range(2):
        page.get_by_role("button", name="trace").click()
        expect(shape(page)).to_have_text("()")
    idle(page)
    assert sum("einsum.json" in url for url in asked) == 1
    assert page.evaluate("history.length") <= length + 1


def test_a_busy_server_is_asked_again_and_a_lost_one_can_be(page, explorer):
    explorer.expected += ["status of 503", "ERR_FAILED"]
    answers = [503, None]

    def busy_once(route):
        if answers.pop(0) is None:
            route.continue_()
        else:
            body = '{"error": {"code": "busy", "message": "cpu is busy"}}'
            route.fulfill(status=503, content_type="application/json", headers={"retry-after": "1"}, body=body)

    page.route("**/foundations/einsum.json*", busy_once)
    page.fill("#input-shapes", "4,5")
    expect(shape(page)).to_have_text("(5, 4)")
    page.unroute_all()
    page.route("**/foundations/einsum.json*", lambda route: route.abort())
    page.fill("#input-shapes", "6,7")
    expect(page.locator("#page-error")).to_contain_text("The server cannot be reached.")
    page.unroute_all()
    page.get_by_role("button", name="Try again").click()
    expect(shape(page)).to_have_text("(7, 6)")
    expect(page.locator("#page-error")).to_be_hidden()


@pytest.mark.long
@pytest.mark.parametrize("context_options", [{"viewport": {"width": 390, "height": 844}}], ids=["phone"])
def test_the_index_leads_to_every_page_on_a_phone_too(explorer):
    page = explorer.page
    page.goto(f"{explorer.url}/foundations")
    links = page.locator(".page-list a")
    expect(links).to_have_count(11)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for address in [link.get_attribute("href") for link in links.all()]:
        page.goto(explorer.url + address)
        page.wait_for_selector("body[data-answers]")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), address
