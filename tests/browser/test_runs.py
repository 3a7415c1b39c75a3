"""The page of a folder's runs: curves, events, layers and graphs, while a run is written."""

import re

import pytest
from board_runs import COLUMNS, DIVERGES, SENTENCE, write_runs, write_steps
from command import command
from playwright.sync_api import expect
from waiting import idle

from chainrule.history import RunWriter


@pytest.fixture
def open_runs(explorer):
    """Opens the page of a folder, which is the test's own."""
    links = []

    def open_page(folder):
        server = command("runs", str(folder), "--no-browser")
        links.append(server)
        explorer.page.goto(server.__enter__())
        idle(explorer.page)
        return explorer.page

    yield open_page
    for server in links:
        server.__exit__(None, None, None)


def row(page, name):
    return page.locator("run-list tbody tr").filter(has_text=name)


def choice(page, name):
    return page.locator("run-layers").get_by_role("combobox", name=name, exact=True)


def ask_again(page):
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


def press(chart, key, times=1):
    chart.focus()
    for _ in range(times):
        chart.press(key)


def test_runs_are_shown_over_each_other_and_a_live_one_grows(open_runs, tmp_path):
    page = open_runs(write_runs(tmp_path))
    expect(row(page, "nan")).to_contain_text(f"NaN from step {DIVERGES}")
    expect(row(page, "text")).to_contain_text("the file is not a run of schema chainrule.run/1")
    chart = page.get_by_role("slider", name="Loss over the steps")
    assert chart.get_attribute("aria-valuetext") == "Step 119: first 0.00833, half 0.00417, nan NaN"
    page.locator("run-list label", has_text="half").click()
    press(chart, "ArrowLeft")
    idle(page)
    assert chart.get_attribute("aria-valuetext") == "Step 118: first 0.00840, nan NaN"
    assert re.search("#hide=half$", page.url)
    with RunWriter(tmp_path / "live.run", COLUMNS, model="net") as run:
        write_steps(run, range(5), lambda step: 1.0 + step)
        run.flush()
        ask_again(page)
        expect(row(page, "live")).to_contain_text("running")
        expect(row(page, "live").locator("td").first).to_have_text("4")
        write_steps(run, range(5, 9), lambda step: 1.0 + step)
        expect(row(page, "live").locator("td").first).to_have_text("8")
    expect(row(page, "live")).to_contain_text("complete")


@pytest.mark.long
def test_an_event_shows_its_sentence_and_leads_to_its_graph(open_runs, tmp_path):
    page = open_runs(write_runs(tmp_path))
    event = page.locator(".events li").filter(has_text=SENTENCE)
    event.get_by_role("button").focus()
    idle(page)
    tip = page.locator("run-curves .tip")
    expect(tip).to_have_text(f"nan, step {DIVERGES}: {SENTENCE}")
    event.get_by_role("link", name="Graph of step 37, beside step 22").click()
    page.wait_for_selector("[data-source=dump] graph-view .box", state="attached")
    idle(page)
    expect(page.locator("dump-note")).to_contain_text("nan, step 37")
    assert "dump=1" in page.url
    assert "a=dump:0" in page.url
    assert "/runs/graph/nan#" in page.url
    expect(page.locator("#pin")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("graph-view .box.selected")).to_have_count(1)
    page.reload()
    idle(page)
    expect(page.locator("dump-note")).to_contain_text("nan, step 37")
    page.get_by_role("link", name="Runs").click()
    expect(page.locator(".events")).to_contain_text(SENTENCE)
    idle(page)


@pytest.mark.long
def test_a_mark_shows_its_sentence_under_the_pointer(open_runs, tmp_path):
    page = open_runs(write_runs(tmp_path))
    chart = page.get_by_role("slider", name="Loss over the steps")
    box = chart.bounding_box()
    x = box["x"] + 52 + (box["width"] - 62) * DIVERGES / 119
    tip = page.locator("run-curves .tip")
    # Somewhere on this vertical is the mark.
    for share in range(2, 100, 2):
        page.mouse.move(x, box["y"] + box["height"] * share / 100)
        idle(page)
        if tip.is_visible():
            break
    expect(tip).to_have_text(f"nan, step {DIVERGES}: {SENTENCE}")
    assert "Step 37" in chart.get_attribute("aria-valuetext")


@pytest.mark.long
def test_layers_of_the_chosen_run(open_runs, tmp_path):
    page = open_runs(write_runs(tmp_path))
    layers = page.locator("run-layers")
    choice(page, "run").select_option("first")
    idle(page)
    chart = layers.get_by_role("slider", name="std of the activation")
    press(chart, "ArrowDown")
    press(chart, "Home")
    press(chart, "ArrowRight", 7)
    idle(page)
    assert chart.get_attribute("aria-valuetext") == "step 7, row 2, l2: 9.00"
    ratio = layers.get_by_role("slider", name="Update : weight")
    assert ratio.get_attribute("aria-valuetext") == "step 7, l2: 0.00100"
    choice(page, "run").select_option("nan")
    idle(page)
    expect(layers.locator(".scale")).to_contain_text("NaN or Inf (purple)")
    assert chart.get_attribute("aria-valuetext") == "step 7, row 2, l2: 9.00"
    press(chart, "End")
    idle(page)
    assert chart.get_attribute("aria-valuetext") == "step 79, row 2, l2: NaN"
    choice(page, "run").select_option("first")
    choice(page, "statistic").select_option("dead_fraction")
    idle(page)
    expect(layers).to_contain_text("No layer has the dead units of its activation.")
    choice(page, "part").select_option("update")
    choice(page, "statistic").select_option("ratio")
    idle(page)
    expect(layers.get_by_role("slider", name="update : weight of the update")).to_be_visible()
    assert "run=first&part=update&statistic=ratio" in page.url
    page.reload()
    idle(page)
    assert choice(page, "run").input_value() == "first"
    assert choice(page, "statistic").input_value() == "ratio"


@pytest.mark.long
def test_an_empty_folder_says_how_to_make_a_run_and_fills(open_runs, tmp_path):
    page = open_runs(tmp_path / "later")
    expect(page.locator("#empty")).to_contain_text(f"--keep {tmp_path / 'later'}/first.run")
    expect(page.locator("#board")).to_be_hidden()
    with RunWriter(tmp_path / "later" / "first.run", COLUMNS, model="net") as run:
        write_steps(run, range(3), lambda _: 1.0)
    expect(row(page, "first")).to_be_visible()
    expect(page.locator("#empty")).to_be_hidden()


@pytest.mark.long
def test_a_lost_server_is_said(explorer, tmp_path):
    with command("runs", str(write_runs(tmp_path)), "--no-browser") as link:
        page = explorer.page
        page.goto(link)
        idle(page)
    explorer.expected.append("ERR_CONNECTION_REFUSED")
    ask_again(page)
    expect(page.locator("#problem")).to_have_text("The server cannot be reached. The page tries again.")
    expect(row(page, "first")).to_be_visible()
