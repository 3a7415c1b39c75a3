"""While pictures come quickly, canvases show what moves, and no element changes; then the elements show it all.

The elements stand on a page of their own, with a clock that the test moves: no picture comes too late to be quick.
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

MADE = """async () => {
    const { pictureOfDump } = await import("/static/core/picture.js");
    await Promise.all([import("/static/elements/layer-table.js"), import("/static/elements/layer-profile.js")]);
    const pictures = [];
    for (const scale of [1, 1.1, 1.2, 50]) {
        const answer = await fetch(`/api/v1/trace.json?widths=20x6&scale=${scale}`);
        pictures.push(pictureOfDump(await answer.json(), pictures.length, "one graph"));
    }
    const style = document.createElement("link");
    const loaded = new Promise((resolve) => (style.onload = resolve));
    Object.assign(style, { rel: "stylesheet", href: "/static/css/explorer-page.css" });
    document.head.append(style);
    await loaded;
    document.body.replaceChildren();

    window.made = async (name) => {
        const element = document.createElement(name);
        element.style.cssText = "display: flex; position: relative; width: 700px; height: 300px";
        document.body.append(element);
        // In order: the element looks, and so does this.
        element.picture = pictures[0];
        const body = element.querySelector("tbody, .frame");
        await new Promise((resolve) => new IntersectionObserver(resolve).observe(body));
        await new Promise((resolve) => new ResizeObserver(resolve).observe(body));
        return element;
    };
    window.pictures = pictures;
    window.texts = (element) => [...element.querySelectorAll("td, path")].map((part) =>
        part.localName === "td" ? part.textContent : part.getAttribute("d"));
    window.painted = (element) => {
        const canvas = element.querySelector("canvas:not([hidden])");
        if (canvas === null) return 0;
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        return data.filter((value, at) => at % 4 === 3 && value > 0).length;
    };
}"""


@pytest.fixture(scope="module")
def alone(browser: Browser, server_url: str) -> Iterator[Page]:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{server_url}/foundations")
    page.clock.install(time=0)
    page.clock.pause_at(1)
    page.evaluate(MADE)
    yield page
    context.close()


@pytest.mark.long
@pytest.mark.parametrize("name", ["layer-table", "layer-profile"])
def test_a_canvas_shows_quick_pictures_and_the_elements_the_last_one(alone, name):
    before, moving, again = alone.evaluate(
        """async (name) => {
            window.element = await made(name);
            element.picture = pictures[1];
            const before = [texts(element), painted(element)];
            element.picture = pictures[2];
            const moving = [texts(element), painted(element)];
            element.picture = pictures[3];
            const again = [texts(element), painted(element)];
            window.other = await made(name);
            other.picture = pictures[3];
            return [before, moving, again];
        }""",
        name,
    )
    assert before[0] == moving[0] == again[0]
    assert before[1] == 0
    assert moving[1] > 100
    assert again[1] > 100
    alone.clock.run_for(500)
    rest, fresh = alone.evaluate(
        """() => {
            const result = [[texts(element), painted(element)], texts(other)];
            element.remove();
            other.remove();
            return result;
        }"""
    )
    assert rest == [fresh, 0]
    assert fresh != before[0]


@pytest.mark.long
def test_forced_colours_do_not_show_the_words_beneath_the_canvas(browser, server_url):
    context = browser.new_context(forced_colors="active")
    page = context.new_page()
    page.goto(f"{server_url}/foundations")
    page.evaluate(MADE)
    colour, moving = page.evaluate(
        """async () => {
            const table = await made("layer-table");
            for (const picture of pictures) table.picture = picture;
            return [getComputedStyle(table.querySelector("td:nth-child(3)")).color, painted(table) > 0];
        }"""
    )
    context.close()
    assert moving
    assert colour == "rgba(0, 0, 0, 0)"


@pytest.mark.parametrize("name", ["layer-table", "layer-profile"])
def test_the_elements_are_never_older_than_five_seconds(alone, name):
    first = alone.evaluate(
        """async (name) => {
            window.element = await made(name);
            for (const picture of pictures.slice(1, 3)) element.picture = picture;
            return texts(element);
        }""",
        name,
    )
    for turn in range(27):
        alone.clock.run_for(200)
        alone.evaluate("(at) => { element.picture = pictures[at]; }", 2 + turn % 2)
    assert alone.evaluate("texts(element)") != first
    alone.evaluate("element.remove()")


def test_the_figures_return_to_the_table_when_its_size_changes(alone):
    moving, narrow = alone.evaluate(
        """async () => {
            const table = await made("layer-table");
            for (const picture of pictures) table.picture = picture;
            const moving = painted(table) > 0;
            table.style.width = "400px";
            await new Promise((resolve) => new ResizeObserver(resolve).observe(table));
            const narrow = [painted(table), table.classList.contains("moving")];
            table.remove();
            return [moving, narrow];
        }"""
    )
    assert moving
    assert narrow == [0, False]


def test_the_figures_return_to_the_table_when_the_page_scrolls(alone):
    moving, scrolled, quick = alone.evaluate(
        """async () => {
            const table = await made("layer-table");
            for (const picture of pictures) table.picture = picture;
            const moving = [painted(table) > 0, table.classList.contains("moving")];
            dispatchEvent(new Event("scroll"));
            const scrolled = [painted(table) > 0, table.classList.contains("moving"), texts(table).at(-1)];
            table.picture = pictures[1];
            table.picture = pictures[2];
            const quick = [painted(table) > 0, table.classList.contains("moving")];
            table.remove();
            return [moving, scrolled, quick];
        }"""
    )
    assert moving == [True, True]
    assert scrolled[:2] == [False, False]
    assert scrolled[2] not in ("", "–")
    assert quick == [True, True]
