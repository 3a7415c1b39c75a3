"""Several dumps in one page: steps of a training under a slider, two of them compared, and files that are none."""

import copy
import json
import re
from pathlib import Path

import pytest
import torch
from playwright.sync_api import expect
from serving import server
from torch import nn

from chainrule import trace_model
from chainrule.dump.wire import dump_trace

pytestmark = pytest.mark.browser

STEPS = 6


class Task(nn.Module):
    """A net and its loss, so that a forward pass ends in a scalar."""

    def __init__(self, hidden):
        super().__init__()
        torch.manual_seed(3)
        layers = [nn.Linear(8, 12), nn.ReLU()]
        for _ in range(hidden - 1):
            layers += [nn.Linear(12, 12), nn.ReLU()]
        self.body = nn.Sequential(*layers, nn.Linear(12, 1))

    def forward(self, inp, target):
        return nn.functional.mse_loss(self.body(inp), target)


def batch():
    """inp: (32, 8), target: (32, 1)."""
    inp = torch.randn(32, 8, generator=torch.Generator().manual_seed(5))
    return inp, inp.sum(1, keepdim=True).sin()


@pytest.fixture(scope="module")
def dumps(tmp_path_factory) -> Path:
    """A folder: step0.json … step1000.json of one training, half.json in bfloat16, deeper.json with a layer more."""
    folder = tmp_path_factory.mktemp("dumps")
    inp, target = batch()
    task = Task(2)
    (folder / "half.json").write_bytes(
        dump_trace(trace_model(copy.deepcopy(task).bfloat16(), inp.bfloat16(), target.bfloat16()))
    )
    (folder / "deeper.json").write_bytes(dump_trace(trace_model(Task(3), inp, target)))
    optimizer = torch.optim.SGD(task.parameters(), lr=0.2)
    for step in range(STEPS):
        (folder / f"step{200 * step}.json").write_bytes(dump_trace(trace_model(task, inp, target)))
        for _ in range(10):
            optimizer.zero_grad()
            task(inp, target).backward()
            optimizer.step()
    return folder


def files(folder, *names):
    return [str(folder / f"{name}.json") for name in names]


def steps_of(folder):
    return files(folder, *(f"step{200 * step}" for step in range(STEPS)))


def read(folder, name):
    return json.loads((folder / f"{name}.json").read_text())


def statistic(dump, name, column):
    """A tensor's figure, by its name."""
    (tensor,) = [each["id"] for each in dump["tensors"] if each["name"] == name]
    return dump["statistics"][column][dump["statistics"]["tensor"].index(tensor)]


@pytest.fixture(scope="module")
def steps_url(dumps):
    """A server with all steps, handed over in the order of letters as a shell does."""
    with server("open", *sorted(steps_of(dumps)), "--no-browser") as (url, _):
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


def test_steps_stand_in_the_order_of_their_numbers_and_each_is_shown_as_it_was(explorer, steps_url, dumps, significant):
    page = visit(explorer, steps_url)
    scrubber = page.locator("dump-scrubber")
    expect(scrubber.locator("strong")).to_have_text("step0.json")
    expect(scrubber).to_have_attribute("data-read", str(STEPS))
    slider = scrubber.get_by_role("slider", name="Dump")
    slider.focus()
    for step in range(1, STEPS):
        page.keyboard.press("ArrowRight")
        dump = read(dumps, f"step{200 * step}")
        expect(page.locator('graph-view .box[data-id="body.1.relu"] .value')).to_have_text(
            significant(statistic(dump, "body.1.relu", "std"))
        )
        expect(scrubber.locator("strong")).to_have_text(f"step{200 * step}.json")
        loss = significant(dump["loss"])
        expect(slider).to_have_attribute("aria-valuetext", f"step{200 * step}.json, {step + 1} of {STEPS}, loss {loss}")
        expect(page.locator("dump-note dd").first).to_have_text(loss)
    page.wait_for_function("() => location.hash === '#dump=5'")
    page.reload()
    expect(scrubber.locator("strong")).to_have_text("step1000.json")


def test_scrubbing_keeps_selection_expansion_and_viewport(explorer, steps_url):
    page = visit(explorer, steps_url, "select=body.2.weight&toggled=body.2/forward&zoom=2&at=0.3")
    expect(page.locator("inspector-panel h2")).to_have_text("body.2.weight")
    explorer_at = page.locator('graph-view .box[data-id="body.2.weight"]')
    expect(explorer_at).to_have_class(re.compile("selected"))
    # What is drawn stays: the figures in it change.
    page.wait_for_timeout(500)
    where, asked = explorer_at.bounding_box(), fragment(page)
    drawn = page.evaluate_handle("() => document.querySelector('graph-view .box[data-id=\"body.2.weight\"]')")
    for step in (3, 5, 1):
        set_slider(page, step)
        expect(page.locator("dump-scrubber .place")).to_contain_text(f"{step + 1} of {STEPS}")
    page.wait_for_timeout(300)
    assert explorer_at.bounding_box() == where
    assert page.evaluate("(box) => box.isConnected", drawn)
    assert fragment(page).replace("&dump=1", "") == asked
    expect(page.locator("inspector-panel h2")).to_have_text("body.2.weight")


def test_the_selected_tensor_is_seen_at_every_step(explorer, steps_url, dumps, significant):
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


def test_it_plays_to_the_end_and_stops(explorer, steps_url):
    page = visit(explorer, steps_url, f"dump={STEPS - 3}")
    scrubber = page.locator("dump-scrubber")
    page.evaluate(
        """() => {
            const [play, name] = [".play", "strong"].map((each) => document.querySelector(`dump-scrubber ${each}`));
            [window.labels, window.names] = [[], []];
            new MutationObserver(() => labels.push(play.ariaLabel)).observe(play, { attributeFilter: ["aria-label"] });
            const words = { childList: true, characterData: true, subtree: true };
            new MutationObserver(() => names.push(name.textContent)).observe(name, words);
        }"""
    )
    scrubber.get_by_role("button", name="Play").click()
    page.wait_for_function("() => labels.length === 2")
    assert page.evaluate("labels") == ["Pause (space)", "Play (space)"]
    expect(scrubber.locator("strong")).to_have_text("step1000.json")
    expect(scrubber.get_by_role("button", name="Next dump")).to_be_disabled()
    # From the end it begins again.
    page.evaluate("() => { names.length = 0; }")
    scrubber.get_by_role("button", name="Play").click()
    page.wait_for_function("() => labels.length === 4")
    assert page.evaluate("names[0]") == "step0.json"
    expect(scrubber.locator("strong")).to_have_text("step1000.json")


def test_two_steps_are_compared(explorer, steps_url, dumps, significant):
    page = visit(explorer, steps_url)
    page.get_by_role("button", name="Pin A").click()
    page.wait_for_function("() => location.hash === '#a=dump:0&colour=difference'")
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
    expect(page.locator("graph-view .legend")).to_contain_text("Difference to A")

    page.get_by_role("button", name="Swap").click()
    expect(comparison.locator(".specs strong")).to_have_text(["step1000.json", "step0.json"])
    page.get_by_role("button", name="Unpin").click()
    expect(comparison).to_be_hidden()
    page.wait_for_function("() => location.hash === ''")
    assert page.locator("graph-toolbar option[value=difference]").count() == 0


def relative_difference(a, b, name):
    """The largest of std, as a share of the greater one, and of the least and the greatest value, of the reach."""
    one, other = ({key: statistic(dump, name, key) for key in ("std", "min", "max")} for dump in (a, b))
    reach = max(abs(each[end]) for each in (one, other) for end in ("min", "max"))
    shares = [abs(one[end] - other[end]) / reach for end in ("min", "max")]
    if max(one["std"], other["std"]) > 0:
        shares.append(abs(one["std"] - other["std"]) / max(one["std"], other["std"]))
    return max(shares)


def test_the_same_net_in_bfloat16_differs_by_its_rounding(explorer, dumps):
    with server("compare", *files(dumps, "step0", "half"), "--no-browser") as (url, _):
        assert url.endswith("/#a=dump:0&colour=difference&dump=1")
        page = explorer.page
        page.goto(url)
        comparison = page.locator("comparison-table")
        expect(comparison.locator(".specs div").nth(0)).to_contain_text("dtype float32")
        expect(comparison.locator(".specs div").nth(1)).to_contain_text("dtype bfloat16")
        expect(comparison.locator(".tensors .hint")).to_contain_text("compared")
        expect(comparison.locator(".tensors .hint")).not_to_contain_text("matched by")
        # Eight bits of precision: parameters are rounded by at most a 256th.
        a, b = read(dumps, "step0"), read(dumps, "half")
        for name in ("body.0.weight", "body.2.weight", "body.4.bias"):
            assert 0 < relative_difference(a, b, name) < 1 / 256
        worst = float(comparison.locator(".tensors tbody tr").first.locator(".apart").text_content())
        assert 1 / 1024 < worst < 0.5


def test_what_one_model_has_more_is_listed_and_the_rest_is_matched(explorer, dumps, significant):
    with server("compare", *files(dumps, "step0", "deeper"), "--no-browser") as (url, _):
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
        # From one graph to the other the selection goes along: by what it is, not by its number.
        page.locator('graph-view .box[data-id="body.4.bias"]').click()
        expect(page.locator("inspector-panel h2")).to_have_text("body.4.bias")
        set_slider(page, 0)
        expect(page.locator("dump-scrubber strong")).to_have_text("step0.json")
        expect(page.locator("inspector-panel h2")).to_have_text("body.4.bias")
        expect(page.locator("dump-scrubber .break")).to_have_count(1)


def test_steps_without_the_selected_tensor_are_told(explorer, dumps):
    paths = files(dumps, "step0", "deeper", "step200")
    with server("open", *paths, "--no-browser") as (url, _):
        page = visit(explorer, url, "select=body.6.weight&dump=1")
        expect(page.locator("tensor-over-steps .note")).to_have_text("2 steps have no such tensor")
        expect(page.locator("dump-scrubber .break")).to_have_count(2)


def test_a_file_that_is_no_dump_is_named_and_the_others_are_opened(explorer, dumps, tmp_path):
    bad = tmp_path / "notes.json"
    bad.write_text('{"schema": "chainrule.trace/2"}')
    page = explorer.open().page
    page.set_input_files("dump-opener input[type=file]", [*files(dumps, "step200", "step0"), str(bad)])
    dialog = page.get_by_role("alertdialog")
    expect(dialog).to_contain_text("notes.json")
    expect(dialog).to_contain_text('"chainrule.trace/2"')
    expect(page.locator("dump-scrubber .place")).to_contain_text("1 of 2")
    dialog.get_by_role("button", name="Close").click()
    expect(page.locator("dump-note")).to_contain_text("Back to the live explorer")

    # None of them: what was shown stays.
    page.set_input_files("dump-opener input[type=file]", [str(bad)])
    expect(dialog).to_contain_text("notes.json")
    dialog.get_by_role("button", name="Close").click()
    expect(page.locator("dump-scrubber .place")).to_contain_text("1 of 2")


def test_files_that_differ_in_numbers_alone_are_put_in_their_order(explorer, dumps):
    page = explorer.open().page
    page.set_input_files("dump-opener input[type=file]", files(dumps, "step1000", "step0", "step200"))
    expect(page.locator("dump-scrubber strong")).to_have_text("step0.json")
    for name in ("step200.json", "step1000.json"):
        page.get_by_role("button", name="Next dump").click()
        expect(page.locator("dump-scrubber strong")).to_have_text(name)


def test_a_step_that_only_begins_like_a_dump_is_marked_and_passed_over(explorer, dumps, tmp_path):
    whole = (dumps / "step200.json").read_bytes()
    (tmp_path / "step1.json").write_bytes(whole)
    (tmp_path / "step2.json").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "step3.json").write_bytes(whole)
    with server("open", *files(tmp_path, "step1", "step2", "step3"), "--no-browser") as (url, _):
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


@pytest.mark.parametrize("a", ["dump:99", "dump:x"])
def test_a_pinned_dump_that_is_not_there_is_told(explorer, steps_url, a):
    explorer.expected = ["422"]
    page = visit(explorer, steps_url, f"dump=2&a={a}")
    expect(page.locator("dump-scrubber .problem")).to_contain_text("Run A: ")
    page.wait_for_function("() => location.hash === '#dump=2'")
    expect(page.locator("comparison-table")).to_be_hidden()


def test_of_two_hundred_dumps_the_last_sixteen_are_kept(module, dumps):
    text = (dumps / "step0.json").read_text()
    seen = module(
        "dump/shelf.js",
        """async (m, text) => {
            let reads = 0;
            const source = (step) => ({ name: `step${step}.json`, get text() { reads += 1; return text; } });
            const sources = Array.from({ length: 200 }, (_, step) => source(step));
            const shelf = new m.DumpShelf(sources);
            const first = await shelf.get(0);
            const after = reads;
            for (let step = 0; step < 200; step += 1) await shelf.get(step);
            const last = await shelf.get(199);
            const before = reads;
            await shelf.get(185);
            const kept = reads;
            await shelf.get(100);
            return {
                kept: shelf.kept,
                lazy: after,
                again: [kept - before, reads - kept],
                shared: last.picture.key === first.picture.key,
                one: (await shelf.get(198)).picture.topology === last.picture.topology,
            };
        }""",
        text,
    )
    assert seen["kept"] == 16
    # Looked at twice: whether there is a text, and the text. None but the first was read for the first.
    assert seen["lazy"] <= 2
    assert seen["again"][0] == 0
    assert seen["again"][1] > 0
    assert (seen["shared"], seen["one"]) == (True, True)


def test_counts_of_histograms_survive_being_put_away(module, dumps):
    dump = read(dumps, "step0")
    dump["statistics"]["histogram"]["counts"][0][:3] = [4_000_000, 61, 1]
    seen = module(
        "dump/step-figures.js",
        """async (m, text) => {
            const figures = await new m.StepReader().read({ name: "x", text });
            const unit = (at) => figures.units[Math.floor(at / 64)];
            const again = Array.from(figures.counts.slice(0, 128), (count, at) => count * unit(at));
            return { again, loss: figures.loss, rows: figures.units.length };
        }""",
        json.dumps(dump),
    )
    assert seen["rows"] == len(dump["statistics"]["tensor"])
    assert seen["loss"] == dump["loss"]
    first, second = dump["statistics"]["histogram"]["counts"][:2]
    assert seen["again"][64:] == second
    assert seen["again"][:64] == pytest.approx(first, abs=4_000_000 / 65535)


def test_graphs_are_matched_by_what_things_are(module, dumps):
    a, b = read(dumps, "step0"), read(dumps, "deeper")
    seen = module(
        "lab/match.js",
        """(m, [a, b]) => {
            const { isSame, tensors, ops, onlyA, onlyB } = m.matchGraphs(a, b);
            const same = m.matchGraphs(a, structuredClone(a));
            const carried = ["n3", "body.4.bias", "body.0/forward"].map((id) => m.carried(id, a, b));
            const lists = { tensors: [...tensors], ops: [...ops], places: [...same.tensors] };
            return { isSame, onlyA, onlyB, same: same.isSame, carried, ...lists };
        }""",
        [a, b],
    )
    assert (seen["isSame"], seen["same"]) == (False, True)
    assert seen["places"] == list(range(len(a["tensors"])))
    names = {
        here["name"]: a["tensors"][there]["name"]
        for here, there in zip(b["tensors"], seen["tensors"], strict=True)
        if there >= 0
    }
    # A parameter, what a module puts out, and the gradients of both answer to their namesakes.
    assert all(name == other for name, other in names.items())
    assert {"body.0.weight", "body.3.relu", "body.4.linear.g", "body.2.bias.g", "mse_loss"} <= names.keys()
    assert {name for name in names if name.startswith(("body.5", "body.6"))} == set()
    partners = [there for there in seen["tensors"] if there >= 0]
    assert len(partners) == len(set(partners)) == len(a["tensors"])
    assert seen["onlyA"] == {"modules": [], "tensors": []}
    assert seen["onlyB"]["modules"] == ["body.5 ReLU", "body.6 Linear"]
    for op, other in zip(b["ops"], seen["ops"], strict=True):
        assert other < 0 or (op["name"], op["phase"]) == (a["ops"][other]["name"], a["ops"][other]["phase"])
    by_id = {op["id"]: op["name"] for op in b["ops"]}
    assert by_id[seen["carried"][0]] == next(op["name"] for op in a["ops"] if op["id"] == "n3")
    assert seen["carried"][1:] == ["body.4.bias", "body.0/forward"]


class Repeated(nn.Module):
    """One layer, so many times one after the other."""

    def __init__(self, times):
        super().__init__()
        self.times, self.lin = times, nn.Linear(3, 3)

    def forward(self, x):
        for _ in range(self.times):
            x = torch.tanh(self.lin(x))
        return x.square().mean()


def test_of_what_is_repeated_the_first_is_matched_with_the_first(module):
    a, b = (json.loads(dump_trace(trace_model(Repeated(times), torch.randn(2, 3)))) for times in (2, 3))
    seen = module(
        "lab/match.js",
        """(m, [a, b]) => {
            const { ops, tensors, onlyB } = m.matchGraphs(a, b);
            return { ops: [...ops], tensors: [...tensors], onlyB };
        }""",
        [a, b],
    )
    ops = [None if there < 0 else a["ops"][there]["id"] for there in seen["ops"]]
    named = {op["id"]: other for op, other in zip(b["ops"], ops, strict=True)}
    forward = [(op["name"], other) for op, other in zip(b["ops"], ops, strict=True) if op["phase"] == "forward"]
    assert forward == [
        *(("linear", "n0"), ("tanh", "n1"), ("linear", "n2"), ("tanh", "n3"), ("linear", None), ("tanh", None)),
        *(("square", "n4"), ("mean", "n5")),
    ]
    # What goes back belongs to what it goes back from, though the last call goes back first.
    twins = {op["id"]: op["twin"] for op in a["ops"]}
    for op in b["ops"]:
        if op["name"] in ("TanhBackward0", "AddmmBackward0"):
            other = named[op["id"]]
            assert (other and twins[other]) == named[op["twin"]], op["id"]
    names = {
        here["name"]: None if there < 0 else a["tensors"][there]["name"]
        for here, there in zip(b["tensors"], seen["tensors"], strict=True)
    }
    for name in ("tanh", "tanh_1", "tanh.g", "tanh_1.g", "lin.weight.g", "lin.bias.g", "square.g"):
        assert names[name] == name
    assert names["tanh_2"] is names["tanh_2.g"] is None
    assert [b["tensors"][tensor]["name"] for tensor in seen["onlyB"]["tensors"]] == ["lin.linear_2", "tanh_2"]


@pytest.mark.parametrize("context_options", [{"viewport": {"width": 390, "height": 844}}])
def test_it_fits_a_narrow_screen(explorer, steps_url, context_options):
    assert context_options["viewport"]["width"] == 390
    page = visit(explorer, steps_url, "select=body.2.weight&tab=inspector&a=dump:0")
    expect(page.locator("tensor-over-steps canvas")).to_be_visible()
    for tab in ("Inspector", "Profile", "Graph"):
        page.get_by_role("tab", name=tab, exact=True).click()
        expect(page.locator("dump-scrubber input")).to_be_in_viewport()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
