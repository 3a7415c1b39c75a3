"""Several dumps in one page: steps of a training under a slider, two of them compared, and files that are none."""

import gzip
import json
import re
from pathlib import Path

import pytest
import torch
from command import command
from figures import significant, statistic
from playwright.sync_api import expect
from torch import nn
from training_dumps import STEPS, read, write_dumps
from waiting import expect_when_idle

from chainrule import ModelSpec, record
from chainrule.dump.wire import dump_trace
from chainrule.run import trace_spec


@pytest.fixture(scope="module")
def dumps(tmp_path_factory) -> Path:
    """A folder of dumps; see `write_dumps`."""
    return write_dumps(tmp_path_factory.mktemp("dumps"))


def files(folder, *names):
    return [str(folder / f"{name}.json") for name in names]


def steps_of(folder):
    return files(folder, *(f"step{200 * step}" for step in range(STEPS)))


@pytest.fixture(scope="module")
def steps_url(dumps):
    """A server with all steps, handed over in the order of letters as a shell does."""
    with command("open", *sorted(steps_of(dumps)), "--no-browser", "--insecure", "--port", "0") as url:
        yield url


def visit(explorer, url, fragment=""):
    """The page of another server, once its first picture is there."""
    page = explorer.page
    page.goto(f"{url}/#{fragment}" if fragment else url)
    page.wait_for_selector("graph-view .box", state="attached")
    expect(page.locator("body")).to_have_attribute("data-source", "dump")
    return page


def set_slider(page, value):
    page.locator("dump-scrubber input").evaluate(
        """(slider, value) => {
            slider.value = String(value);
            slider.dispatchEvent(new Event("input", { bubbles: true }));
        }""",
        value,
    )


def fragment(page):
    return page.evaluate("location.hash")


@pytest.mark.long
def test_scrubbing_keeps_selection_expansion_and_viewport(explorer, steps_url, dumps):
    page = visit(explorer, steps_url, "select=body.2.weight&toggled=body.2/forward&zoom=2&at=0.3")
    expect(page.locator("inspector-panel h2")).to_have_text("body.2.weight")
    box, scrubber = page.locator('graph-view .box[data-id="body.2.weight"]'), page.locator("dump-scrubber")
    expect(box).to_have_class(re.compile("selected"))
    expect(scrubber).to_have_attribute("data-read", str(STEPS))
    # The drawing stays; its figures change.
    explorer.idle()
    where, asked = box.bounding_box(), fragment(page)
    drawn = page.evaluate_handle("() => document.querySelector('graph-view .box[data-id=\"body.2.weight\"]')")
    slider = scrubber.get_by_role("slider", name="Dump")
    slider.focus()
    for step in range(1, STEPS):
        page.keyboard.press("ArrowRight")
        # In the order of their numbers.
        expect(scrubber.locator("strong")).to_have_text(f"step{200 * step}.json")
        dump = read(dumps, f"step{200 * step}")
        expect(box.locator(".value")).to_have_text(significant(statistic(dump, "body.2.weight", "std")))
        loss = significant(dump["loss"])
        expect(slider).to_have_attribute("aria-valuetext", f"step{200 * step}.json, {step + 1} of {STEPS}, loss {loss}")
        expect(page.locator("dump-note dd").first).to_have_text(loss)
    explorer.idle()
    assert box.bounding_box() == where
    assert page.evaluate("(box) => box.isConnected", drawn)
    assert fragment(page).replace("&dump=5", "") == asked
    expect(page.locator("inspector-panel h2")).to_have_text("body.2.weight")
    page.reload()
    expect(scrubber.locator("strong")).to_have_text("step1000.json")


@pytest.mark.long
def test_the_selected_tensor_is_seen_at_every_step(explorer, steps_url, dumps):
    page = visit(explorer, steps_url, "select=body.0.weight&dump=2")
    series = page.locator("tensor-over-steps")
    expect(series.locator("h2")).to_have_text(f"body.0.weight at {STEPS} steps")
    expect(series.locator(".note")).to_be_hidden()
    series.locator("summary").click()
    rows = series.locator("tbody tr")
    expect(rows).to_have_count(STEPS)
    for step in range(STEPS):
        dump = read(dumps, f"step{200 * step}")
        figures = [statistic(dump, "body.0.weight", column) for column in ("mean", "std", "min", "max")]
        texts = rows.nth(step).locator("th, td").all_text_contents()
        assert texts == [str(200 * step), *map(significant, figures), "0"]
    expect(rows.nth(2)).to_have_attribute("aria-current", "step")
    first, last = (significant(statistic(read(dumps, f"step{at}"), "body.0.weight", "std")) for at in (0, 1000))
    expect(series.locator("canvas")).to_have_attribute("aria-label", re.compile(f"std {first} at 0, {last} at 1000"))
    rows.nth(4).get_by_role("button", name="800").click()
    expect(page.locator("dump-scrubber strong")).to_have_text("step800.json")
    expect(rows.nth(4)).to_have_attribute("aria-current", "step")
    # The ridges lie one beneath the other: a click on the last one goes there.
    canvas = series.locator("canvas")
    canvas.click(position={"x": 120, "y": canvas.bounding_box()["height"] - 24})
    expect(page.locator("dump-scrubber strong")).to_have_text("step1000.json")
    page.keyboard.press("Escape")
    expect(series).to_be_hidden()


@pytest.mark.long
def test_two_steps_are_compared(explorer, steps_url, dumps):
    page = visit(explorer, steps_url)
    page.get_by_role("button", name="Pin A").click()
    expect_when_idle(page, "() => location.hash === '#a=dump:0&colour=difference'")
    set_slider(page, 5)
    comparison = page.locator("comparison-table")
    expect(comparison.locator(".specs strong")).to_have_text(["step0.json", "step1000.json"])
    a, b = read(dumps, "step0"), read(dumps, "step1000")
    rows = comparison.locator(".tensors tbody tr")
    expect(rows.first).to_be_visible()
    told = []
    for row in rows.all():
        name, left, right, difference = row.locator("td").all_text_contents()
        told.append(float(difference))
        column = "mean" if statistic(a, name, "n") == 1 else "std"
        assert (left, right) == tuple(significant(statistic(dump, name, column)) for dump in (a, b))
        assert difference == significant(relative_difference(a, b, name))
    assert told == sorted(told, reverse=True)
    # Layer by layer as well, and in the profile.
    layers = comparison.locator("tbody.forward tr:not(.section)")
    expect(layers).to_have_count(3)
    assert layers.nth(0).locator("td").all_text_contents()[1] == significant(statistic(a, "body.1.relu", "std"))
    expect(page.locator("layer-profile .key")).to_contain_text("A, step0.json")
    expect(page.locator("graph-view .legend")).to_contain_text("Difference from A")

    page.get_by_role("button", name="Swap").click()
    expect(comparison.locator(".specs strong")).to_have_text(["step1000.json", "step0.json"])
    page.get_by_role("button", name="Unpin").click()
    expect(comparison).to_be_hidden()
    expect_when_idle(page, "() => location.hash === ''")
    assert page.locator("graph-toolbar option[value=difference]").count() == 0


def relative_difference(a, b, name):
    """The largest of std, as a share of the greater one, and of the least and the greatest value, of the reach."""
    one, other = ({key: statistic(dump, name, key) for key in ("std", "min", "max")} for dump in (a, b))
    reach = max(abs(each[end]) for each in (one, other) for end in ("min", "max"))
    shares = [abs(one[end] - other[end]) / reach for end in ("min", "max")]
    if max(one["std"], other["std"]) > 0:
        shares.append(abs(one["std"] - other["std"]) / max(one["std"], other["std"]))
    return max(shares)


@pytest.mark.long
def test_what_one_model_has_more_is_listed_and_the_rest_is_matched(explorer, dumps):
    with command("compare", *files(dumps, "step0", "deeper"), "--no-browser", "--insecure", "--port", "0") as url:
        assert url.endswith("/#a=dump:0&colour=difference&dump=1")
        page = explorer.page
        page.goto(url)
        comparison = page.locator("comparison-table")
        expect(comparison.locator("h3")).to_have_text("Only in B: 2")
        expect(comparison.locator(".alone li")).to_have_text(["body.5 ReLU", "body.6 Linear"])
        expect(comparison.locator(".tensors .hint")).to_contain_text("matched by module path, op and name")
        a, b = read(dumps, "step0"), read(dumps, "deeper")
        # The first layers draw the same weights; the one that was the last has another width.
        assert relative_difference(a, b, "body.0.weight") == 0
        row = comparison.locator('.tensors tr[data-tensor="body.4.bias"]')
        assert row.locator("td").nth(3).text_content() == significant(relative_difference(a, b, "body.4.bias"))
        assert page.locator('.tensors tr[data-tensor="body.0.weight"]').count() == 0
        # The selection goes along to the other graph by its meaning, not by its id.
        page.locator('graph-view .box[data-id="body.4.bias"]').click()
        expect(page.locator("inspector-panel h2")).to_have_text("body.4.bias")
        set_slider(page, 0)
        expect(page.locator("dump-scrubber strong")).to_have_text("step0.json")
        expect(page.locator("inspector-panel h2")).to_have_text("body.4.bias")
        expect(page.locator("dump-scrubber .break")).to_have_count(1)


@pytest.mark.long
def test_steps_without_the_selected_tensor_are_told(explorer, dumps):
    paths = files(dumps, "step0", "deeper", "step200")
    with command("open", *paths, "--no-browser", "--insecure", "--port", "0") as url:
        page = visit(explorer, url, "select=body.6.weight&dump=1")
        expect(page.locator("tensor-over-steps .note")).to_have_text("2 steps have no such tensor")
        expect(page.locator("dump-scrubber .break")).to_have_count(2)


@pytest.mark.long
def test_a_large_compressed_dump_says_how_much_is_read_and_is_shown(explorer, tmp_path):
    with record(nn.Linear(1, 1)) as recording:
        x = torch.ones(1, requires_grad=True)
        for _ in range(6000):
            x = x * 1.0001
        x.backward()
    path = recording.save(tmp_path / "chain.json.gz")
    page = explorer.open().page
    # Each change of the note is kept: the last one may follow at once.
    page.evaluate(
        """() => {
            window.told = [];
            const note = document.querySelector("dump-note");
            new MutationObserver(() => window.told.push(note.textContent)).observe(note,
                { childList: true, characterData: true, subtree: true });
        }"""
    )
    page.set_input_files("dump-opener input[type=file]", [str(path)])
    expect(page.locator("dump-note dl").first).to_be_visible()
    told = page.evaluate("window.told")
    assert any(re.search(r"chain\.json\.gz\d+ MB read$", text) for text in told)
    expect(page.locator("dump-note dl").first).to_contain_text(f"ops{len(recording.trace.ops):,}")
    with page.expect_download() as download:
        page.evaluate("document.querySelector('#save-dump').click()")
    assert Path(download.value.path()).read_bytes() == path.read_bytes()


def test_a_server_s_compressed_dumps_are_shown_and_saved_and_a_damaged_one_is_told(explorer, dumps, tmp_path):
    whole = gzip.compress((dumps / "step0.json").read_bytes())
    (tmp_path / "step0.json.gz").write_bytes(whole)
    (tmp_path / "step200.json.gz").write_bytes(whole[: len(whole) // 2])
    paths = [str(tmp_path / f"{name}.json.gz") for name in ("step0", "step200")]
    with command("open", *paths, "--no-browser", "--insecure", "--port", "0") as url:
        page = visit(explorer, url)
        expect(page.locator("dump-note")).to_contain_text("step0.json.gz")
        with page.expect_download() as download:
            page.evaluate("document.querySelector('#save-dump').click()")
        assert Path(download.value.path()).read_bytes() == whole
        page.get_by_role("button", name="Next dump").click()
        expect(page.locator("dump-scrubber")).to_contain_text("the dump is damaged, or the connection broke")


def test_a_file_that_is_no_dump_is_named_and_the_others_are_opened_in_their_order(explorer, dumps, tmp_path):
    bad = tmp_path / "step300.json"
    bad.write_text('{"schema": "chainrule.trace/2"}')
    page = explorer.open().page
    page.set_input_files("dump-opener input[type=file]", [*files(dumps, "step1000", "step0", "step200"), str(bad)])
    dialog, place = page.get_by_role("alertdialog"), page.locator("dump-scrubber .place")
    expect(dialog).to_contain_text("step300.json")
    expect(dialog).to_contain_text('"chainrule.trace/2"')
    expect(place).to_contain_text("1 of 3")
    dialog.get_by_role("button", name="Close").click()
    expect(page.locator("dump-note")).to_contain_text("Back to the live explorer")
    for name in ("step200.json", "step1000.json"):
        page.get_by_role("button", name="Next dump").click()
        expect(page.locator("dump-scrubber strong")).to_have_text(name)

    # Without a dump among the files the page stays as it was.
    page.set_input_files("dump-opener input[type=file]", [str(bad)])
    expect(dialog).to_contain_text("step300.json")
    dialog.get_by_role("button", name="Close").click()
    expect(place).to_contain_text("3 of 3")


def long_names(body):
    body["tensors"][2]["name"] = "n" * 9990
    body["ops"][0]["name"] = "o p " * 2400
    body["modules"][2] |= {"path": f"layers.{'m' * 9000}", "type": "T" * 9990}
    body["layers"][0]["name"] = "l" * 9990


def long_messages(body):
    body["faults"] = [
        FAULT | {"message": "w" * 10**5, "module": "m" * 10**4, "remedy": "r" * 10**5, "rule": "x" * 10**5}
    ]
    body["ops"][0]["source"] = {"file": "f" * 10**4, "line": 3, "text": "t" * 10**5, "function": "g" * 10**4}
    body["error"] = {"op": "n0", "message": "e" * 10**5}


def many_faults(body):
    body["faults"] = [FAULT | {"message": f"finding {number}"} for number in range(200_000)]


FAULT = {"kind": "dead", "message": "", "module": "m", "op": "n0", "tensor": "t4", "source": None, "remedy": "r"}


@pytest.mark.long
@pytest.mark.parametrize("spoil", [long_names, long_messages, many_faults])
def test_a_hostile_dump_is_shown_and_the_page_goes_on(explorer, tmp_path, spoil):
    body = json.loads(dump_trace(trace_spec(ModelSpec(widths="5,4,3", batch=6))))
    spoil(body)
    (tmp_path / "hostile.json").write_text(json.dumps(body))
    page = explorer.open().page
    page.set_input_files("dump-opener input[type=file]", str(tmp_path / "hostile.json"))
    expect(page.locator("dump-note .file")).to_contain_text("hostile.json")
    faults = page.locator("diagnosis-list .faults > li")
    if len(body["faults"]) == 1:
        expect(faults.locator(".said")).to_have_text(f"{'w' * 2000}…")
    elif body["faults"]:
        expect(faults).to_have_count(101)
        expect(faults.last).to_have_text("199,900 more findings are in the dump.")
    page.locator('graph-view .box[data-id="l1"]').click()
    expect(page.locator('graph-view .box[data-id="l1"].selected')).to_have_count(1)


@pytest.mark.long
def test_a_step_that_only_begins_like_a_dump_is_marked_and_passed_over(explorer, dumps, tmp_path):
    whole = (dumps / "step200.json").read_bytes()
    (tmp_path / "step1.json").write_bytes(whole)
    (tmp_path / "step2.json").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "step3.json").write_bytes(whole)
    with command(
        "open", *files(tmp_path, "step1", "step2", "step3"), "--no-browser", "--insecure", "--port", "0"
    ) as url:
        page = visit(explorer, url)
        scrubber = page.locator("dump-scrubber")
        expect(scrubber.locator(".refused")).to_have_count(1)
        scrubber.get_by_role("button", name="Next dump").click()
        expect(scrubber.locator(".problem")).to_contain_text("step2.json: this is not JSON")
        expect(page.locator("dump-note .file")).to_contain_text("step1.json")
        scrubber.get_by_role("button", name="Next dump").click()
        expect(scrubber.locator(".problem")).to_be_hidden()
        expect(page.locator("dump-note .file")).to_contain_text("step3.json")
        # A link to it leads to the next one that can be read.
        visit(explorer, url, "dump=1&select=loss")
        page.reload()
        expect(page.locator("dump-note .file")).to_contain_text("step3.json")


@pytest.mark.long
def test_a_pinned_dump_that_is_not_there_is_told(explorer, steps_url):
    explorer.expected = ["422"]
    page = visit(explorer, steps_url, "dump=2&a=dump:99")
    expect(page.locator("dump-scrubber .problem")).to_contain_text("Run A: ")
    expect_when_idle(page, "() => location.hash === '#dump=2'")
    expect(page.locator("comparison-table")).to_be_hidden()


@pytest.mark.long
@pytest.mark.parametrize("context_options", [{"viewport": {"width": 390, "height": 844}}])
def test_it_fits_a_narrow_screen(explorer, steps_url, context_options):
    assert context_options["viewport"]["width"] == 390
    page = visit(explorer, steps_url, "select=body.2.weight&tab=inspector&a=dump:0")
    expect(page.locator("tensor-over-steps canvas")).to_be_visible()
    for tab in ("Inspector", "Profile", "Graph"):
        page.get_by_role("tab", name=tab, exact=True).click()
        expect(page.locator("dump-scrubber input")).to_be_in_viewport()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.long
def test_the_files_of_several_ranks_are_joined(explorer, dumps, tmp_path):
    for rank in (0, 1):
        dump = read(dumps, f"step{200 * rank}")
        dump["environment"] |= {"rank": rank, "world_size": 3}
        (tmp_path / f"step7.rank{rank}.json").write_text(json.dumps(dump))
    with command(
        "open", *files(tmp_path, "step7.rank0", "step7.rank1"), "--no-browser", "--insecure", "--port", "0"
    ) as url:
        page = visit(explorer, url, "select=body.0.weight&dump=1")
        expect(page.locator("dump-scrubber strong")).to_have_text("step7.rank1.json")
        expect(page.locator("diagnosis-list")).to_contain_text("there is no file of rank 2")
        # Ranks have no order in time: two dots, and nothing to play.
        expect(page.locator("dump-scrubber circle.loss")).to_have_count(2)
        expect(page.locator("dump-scrubber path.loss")).to_have_count(0)
        expect(page.locator("dump-scrubber .controls button:visible")).to_have_count(2)
        series = page.locator("tensor-over-steps")
        expect(series.locator("h2")).to_have_text("body.0.weight on 2 ranks")
        ends = [
            [statistic(read(dumps, f"step{at}"), "body.0.weight", end) for at in (0, 200)] for end in ("min", "max")
        ]
        low, high = min(ends[0]), max(ends[1])
        expect(series.locator(".note")).to_have_text(f"all ranks: {significant(low)} to {significant(high)}")
        series.locator("summary").click()
        expect(series.locator("thead th").first).to_have_text("rank")
