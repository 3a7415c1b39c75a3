"""A model of the user's own in the page: explored, changed by a what-if, and watched while its file changes.

The server is the real command in a process of its own; what the page shows is held to PyTorch's own figures.
"""

import importlib.util
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from command import command
from figures import significant
from playwright.sync_api import Locator, Page, WebSocketRoute, expect

FILE = Path(__file__).resolve().parents[1] / "shared" / "user_models" / "blocks.py"

RELU = "torch.relu(hidden)"
SUM = "return x + self.down"
"""Lines of the file's Block, to be edited."""


class Explored:
    """A tab with the page of `chainrule explore FILE:make`."""

    def __init__(self, explorer: Any, link: str, file: Path) -> None:
        self.page: Page = explorer.page
        self.file = file
        self._explorer = explorer
        self._link: str | None = link
        explorer.url = link.partition("/?")[0]

    def open(self, address: str = "/") -> "Explored":
        """Load an address of the page; the link that was printed first, which brings the token."""
        if self._link is not None:
            self.page.goto(self._link)
            self._link = None
            if address == "/":
                self.page.wait_for_selector("run-status[data-seq]")
                return self
            # An address that differs in its fragment alone would not be loaded.
            self.page.goto("about:blank")
        self._explorer.open(address)
        return self

    def spend(self) -> Page:
        """The page, which the next test does not get."""
        page: Page = self._explorer.spend()
        return page

    def edit(self, before: str, after: str) -> None:
        """Save the file with something replaced."""
        code = self.file.read_text()
        assert code.count(before) == 1, before
        self.file.write_text(code.replace(before, after))

    def box(self, name: str) -> Locator:
        return self.page.locator(f'graph-view .box[data-id="{name}"]')

    def place(self, name: str) -> list[float]:
        rect = self.box(name).locator(".frame").bounding_box()
        assert rect is not None
        return [rect["x"], rect["y"], rect["width"]]

    def figure(self, name: str) -> str:
        return self._explorer.figure(name)

    def rest(self) -> "Explored":
        """Wait until neither the picture nor the address has changed for a while."""
        self._explorer.idle()
        return self

    @property
    def seq(self) -> int:
        return int(self.page.locator("run-status").get_attribute("data-seq") or 0)

    @property
    def note(self) -> Locator:
        return self.page.locator("#code-note")


@pytest.fixture(scope="module")
def link() -> Iterator[str]:
    """The link of a server that explores the example file as it is."""
    with command("explore", f"{FILE}:make", "--no-browser", "--port", "0") as link:
        yield link


@pytest.fixture
def explored(explorer: Any, link: str) -> Explored:
    """The example file, explored."""
    return Explored(explorer, link, FILE)


@pytest.fixture
def watched(explorer: Any, tmp_path: Path) -> Iterator[Explored]:
    """A copy of the example file, explored and watched."""
    file = Path(shutil.copy(FILE, tmp_path))
    with command("explore", f"{file}:make", "--no-browser", "--watch", "--port", "0") as link:
        yield Explored(explorer, link, file)


@pytest.fixture
def bare() -> Callable[..., dict[str, float]]:
    """The stds of the example's tensors as PyTorch computes them, without a recorder, its weights times a scale."""
    spec = importlib.util.spec_from_file_location("own_model_blocks", FILE)
    assert spec is not None
    assert spec.loader is not None
    blocks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(blocks)

    def run(scale: float = 1.0, group: str = "") -> dict[str, float]:
        model, x, loss = blocks.make()
        figures = {}
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.ndim >= 2 and name.startswith(group):
                    parameter.mul_(scale)
        for name, module in model.named_modules():
            if isinstance(module, torch.nn.Linear):
                module.register_forward_hook(
                    lambda _, __, out, name=name: figures.update({f"{name}.linear": std(out)}),
                )
        value = loss(model(x))
        value.backward()
        for name, parameter in model.named_parameters():
            figures[name] = std(parameter)
            figures[f"{name}.g"] = std(parameter.grad)
        return figures | {"loss": float(value.detach())}

    return run


def std(tensor: torch.Tensor) -> float:
    """Population std in float64."""
    return float(tensor.detach().double().std(correction=0))


@pytest.mark.long
def test_the_page_shows_the_users_model_with_pytorchs_own_figures(explored, bare):
    page = explored.open().page
    expect(page).to_have_title("blocks.py:make · Chainrule")
    expect(page.locator(".model-name")).to_have_text("blocks.py:make")
    # Nothing of the chapter's: no presets, no spec, no experiments.
    for absent in (
        "spec-controls",
        ".models",
        "a[href='/foundations']:visible",
        "spec-presets:visible",
        "#copy-pytorch:visible",
    ):
        expect(page.locator(absent)).to_have_count(0)
    figures = bare()
    for name in ("embed.linear", "blocks.0.up.linear", "blocks.2.down.linear", "head.weight", "blocks.1.up.weight.g"):
        assert explored.figure(name) == significant(figures[name]), name
    expect(page.locator("run-status .loss")).to_have_text(significant(figures["loss"]))
    for block in range(3):
        expect(explored.box(f"blocks.{block}/forward")).to_be_visible()
        expect(explored.box(f"blocks.{block}/backward")).to_have_count(1)
    # The downloads are the model's.
    assert page.locator("a[data-trace=json]").get_attribute("href") == "/api/v1/model/trace.json"
    dump = json.loads(page.evaluate("fetch('/api/v1/model/trace.json').then((answer) => answer.text())"))
    assert {op["name"] for op in dump["ops"]} >= {"layer_norm", "linear", "relu", "mse_loss"}


@pytest.mark.long
def test_the_slider_moves_the_picture_while_it_is_dragged(explored, bare):
    page = explored.open().page
    rect = page.locator("what-if-controls .slider").bounding_box()
    middle, y = rect["x"] + rect["width"] / 2, rect["y"] + rect["height"] / 2
    page.mouse.move(middle, y)
    page.mouse.down()
    seen = [explored.figure("head.linear")]
    for share in (0.1, 0.2, 0.3):
        page.mouse.move(middle + share * rect["width"] / 2, y)
        expect(explored.box("head.linear").locator(".value")).not_to_have_text(seen[-1])
        seen.append(explored.rest().figure("head.linear"))
    # Still dragged, and each place of the thumb has shown another picture.
    assert len(set(seen)) == 4
    page.mouse.up()
    explored.rest()
    scale = float(page.locator("#what-if-scale").input_value())
    assert scale > 1
    assert f"scale={page.locator('#what-if-scale').input_value()}" in page.url
    figures = bare(scale)
    for name in ("head.weight", "head.linear", "embed.weight.g"):
        assert explored.figure(name) == significant(figures[name]), name
    # One-dimensional parameters are as they were.
    assert explored.figure("head.bias") == significant(bare()["head.bias"])


@pytest.mark.long
def test_a_group_of_the_model_is_changed_alone_and_the_address_holds_it(explored, bare):
    page = explored.open().page
    take = page.locator("what-if-controls .take")
    expect(take).to_be_disabled()
    explored.box("embed.linear").click()
    expect(take).to_have_text("this group: embed")
    # A box that holds others stands for the module itself.
    page.goto(page.url.partition("#")[0] + "#select=blocks.1/forward")
    expect(take).to_have_text("this group: blocks.1")
    take.click()
    page.locator("#what-if-scale").fill("5")
    page.keyboard.press("Enter")
    figures = bare(5, "blocks.1.")
    expect(explored.box("blocks.1.up.weight").locator(".value")).to_have_text(
        significant(figures["blocks.1.up.weight"])
    )
    assert explored.rest().figure("head.linear") == significant(figures["head.linear"])
    assert explored.figure("blocks.0.up.weight") == significant(bare()["blocks.0.up.weight"])
    expect(page.locator("what-if-controls .count")).to_have_text("2 of 8 weights")
    assert "?scale=5&group=blocks.1" in page.url
    # A reload of the page shows the same.
    page.reload()
    page.wait_for_selector("run-status[data-seq]")
    expect(page.locator("#what-if-group")).to_have_value("blocks.1")
    expect(explored.box("head.linear").locator(".value")).to_have_text(significant(figures["head.linear"]))
    # And a reset brings everything back.
    page.get_by_role("button", name="Reset", exact=True).click()
    expect(explored.box("head.linear").locator(".value")).to_have_text(significant(bare()["head.linear"]))
    expect(page.locator("#what-if-scale")).to_have_value("1")
    explored.rest()
    assert "?" not in page.url


@pytest.mark.long
def test_the_level_aten_is_recorded_when_it_is_chosen_and_left_again(explored, bare):
    held: list[tuple[WebSocketRoute, str | bytes]] | None = None

    def relay(socket: WebSocketRoute) -> None:
        server = socket.connect_to_server()
        server.on_message(lambda each: socket.send(each) if held is None else held.append((socket, each)))

    explored.spend().route_web_socket(re.compile("/live"), relay)
    page = explored.open("/?scale=2#select=blocks.1.up.linear").page
    level = page.locator("graph-toolbar .recording")
    expect(level).to_have_value("op")
    held = []
    level.select_option("aten")
    expect(level.locator("option:checked")).to_have_text("Recording…")
    late, held = held, None
    for socket, each in late:
        socket.send(each)
    expect(level.locator("option:checked")).to_have_text("program: ATen ops")
    explored.rest()
    expect(explored.box("blocks.1.up.linear/forward")).to_be_visible()
    # What was selected stays selected, with the same values.
    assert "/?scale=2&recording=aten#select=blocks.1.up.linear.addmm" in page.url
    name = page.locator("inspector-panel h2")
    expect(name).to_have_text("blocks.1.up.linear.addmm")
    assert explored.figure("blocks.1.up.linear.addmm") == significant(bare(2)["blocks.1.up.linear"])
    page.get_by_role("button", name="Reset", exact=True).click()
    explored.rest()
    assert "/?recording=aten#" in page.url
    assert explored.figure("blocks.1.up.linear.addmm") == significant(bare()["blocks.1.up.linear"])
    page.reload()
    page.wait_for_selector("run-status[data-seq]")
    expect(level).to_have_value("aten")
    level.select_option("op")
    expect(name).to_have_text("blocks.1.up.linear")
    explored.rest()
    assert "/#select=blocks.1.up.linear" in page.url
    assert explored.figure("blocks.1.up.linear") == significant(bare()["blocks.1.up.linear"])


@pytest.mark.long
def test_the_page_shows_what_torch_compile_runs(explored, bare):
    page = explored.open("/?scale=2").page
    page.locator("graph-toolbar .recording").select_option("aot_eager")
    explored.rest()
    assert "/?scale=2&recording=aot_eager" in page.url
    name = "blocks.1.up.addmm"
    explored.open(f"/?scale=2&recording=aot_eager#select={name}")
    assert explored.figure(name) == significant(bare(2)["blocks.1.up.linear"])


@pytest.mark.long
def test_groups_are_found_by_typing_and_chosen_by_keys(explored):
    page = explored.open().page
    field = page.get_by_role("combobox", name="Group")
    field.click()
    options = page.locator("what-if-controls [role=option]")
    expect(options).to_have_count(13)
    expect(options.first).to_have_text("the whole model")
    field.press_sequentially("2 do")
    expect(options).to_have_text(["blocks.2.down"])
    page.keyboard.press("Enter")
    expect(options.first).to_be_hidden()
    expect(page.locator("what-if-controls .count")).to_have_text("1 of 8 weights")
    # A typed text that was not chosen is dropped.
    field.press_sequentially("0")
    page.locator("#what-if-scale").focus()
    expect(field).to_have_value("blocks.2.down")
    # An unknown module is refused at its field, and the picture stays.
    field.fill("blocks.7")
    page.keyboard.press("Enter")
    note = page.locator("what-if-controls [data-key=group] .note")
    expect(note).to_contain_text("group: 'blocks.7' is not a module")
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(page.locator("what-if-controls .count")).to_have_text("1 of 8 weights")
    field.fill("")
    page.keyboard.press("Enter")
    expect(note).to_be_empty()
    expect(page.locator("what-if-controls .count")).to_have_text("8 weights")


@pytest.mark.long
def test_weights_are_drawn_anew_and_their_seed_counts_only_then(explored, bare):
    page = explored.open().page
    seed, dice = page.locator("#what-if-seed"), page.get_by_role("button", name="Another seed")
    expect(seed).to_be_disabled()
    expect(dice).to_be_disabled()
    page.locator("#what-if-init").select_option("kaiming_normal")
    expect(seed).to_be_enabled()
    explored.rest()
    drawn = explored.figure("blocks.0.up.weight")
    # Kaiming's std is √(2/fan_in), here of 16 inputs: 512 draws are within a tenth of it.
    assert float(drawn) == pytest.approx((2 / 16) ** 0.5, rel=0.1)
    values = page.locator("graph-view .box.tensor .value")
    before = values.all_text_contents()
    dice.click()
    # One std alone is the same to three digits in one draw of thirty.
    expect(values).not_to_have_text(before)
    page.locator("#what-if-init").select_option("")
    original = significant(bare()["blocks.0.up.weight"])
    expect(explored.box("blocks.0.up.weight").locator(".value")).to_have_text(original)


@pytest.mark.long
def test_keys_move_the_slider_and_a_mistaken_address_shows_the_model_as_it_is(explored, explorer):
    page = explored.open().page
    page.locator("what-if-controls .slider").focus()
    page.keyboard.press("PageUp")
    expect(page.locator("#what-if-scale")).to_have_value("1.1")
    explorer.expected.append("status of 422")
    page.goto(explorer.url + "/?group=tail&scale=2")
    expect(page.locator(".page-error")).to_contain_text("group: 'tail' is not a module")
    expect(page.locator(".page-error")).to_contain_text("The page shows the unchanged model instead.")
    expect(page.locator("#what-if-scale")).to_have_value("1")
    expect(explored.box("head.linear")).to_be_visible()


@pytest.mark.long
@pytest.mark.parametrize("context_options", [{"viewport": {"width": 390, "height": 844}, "has_touch": True}])
def test_on_a_small_screen_the_groups_have_a_tab_and_only_a_tap_takes_one(explored):
    page = explored.open().page
    expect(page.locator("what-if-controls .slider")).to_be_visible()
    expect(page.locator("#what-if-group")).to_be_hidden()
    page.get_by_role("tab", name="Model").tap()
    for control in ("group", "init", "seed"):
        expect(page.locator(f"#what-if-{control}")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.locator("#what-if-group").tap()
    options = page.locator("what-if-controls [role=option]")
    place = options.nth(8).bounding_box()
    assert place is not None
    session = page.context.new_cdp_session(page)
    x, y = place["x"] + 20, place["y"] + place["height"] / 2
    for kind, by in (("touchStart", 0), *(("touchMove", by) for by in range(10, 90, 10)), ("touchEnd", 0)):
        points = [] if kind == "touchEnd" else [{"x": x, "y": y - by}]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    session.detach()
    expect(options.first).to_be_attached()
    page.wait_for_function("() => document.querySelector('what-if-controls [role=listbox]').scrollTop > 0")
    expect(page.locator("#what-if-group")).to_have_value("")
    options.filter(has_text="blocks.2.down").tap()
    expect(page.locator("#what-if-group")).to_have_value("blocks.2.down")
    expect(page.locator("what-if-controls .count")).to_have_text("1 of 8 weights")


def test_an_edit_of_the_file_is_shown_and_what_was_looked_at_is_looked_at_still(watched):
    page = watched.open("/#toggled=blocks.2.up/forward").page
    relu = page.evaluate(
        """() => fetch("/api/v1/model/trace.json").then((answer) => answer.json())
            .then(({ ops }) => ops.filter(({ name }) => name === "relu")[2].id)"""
    )
    page.evaluate("(id) => { location.hash = `toggled=blocks.2.up/forward&select=${id}`; }", relu)
    page.evaluate("(id) => document.querySelector('graph-view').screen.zoomTo(id)", relu)
    watched.rest()
    expect(watched.box(relu)).to_have_class(re.compile("selected"))
    place = watched.place(relu)
    # One more op in every block, before the one that is looked at: six places later it is another id.
    watched.edit(RELU, "torch.relu(torch.tanh(hidden))")
    expect(watched.box("blocks.2.tanh")).to_be_visible()
    selected = page.locator("graph-view .box.selected")
    expect(selected).to_contain_text("relu")
    watched.rest()
    assert selected.get_attribute("data-id") != relu
    assert f"select={selected.get_attribute('data-id')}" in page.url
    assert watched.place(selected.get_attribute("data-id") or "") == pytest.approx(place, abs=2)
    # The group that was opened by hand is open.
    expect(page.locator('graph-view .box[data-id="blocks.2.up/forward"]')).to_have_class(re.compile("open"))
    expect(page.locator('graph-view .box[data-id="blocks.1.up/forward"]')).to_have_class(re.compile("leaf"))
    expect(page.locator("inspector-panel h2")).to_have_text("relu")


@pytest.mark.long
def test_a_what_if_stays_over_an_edit(watched):
    page = watched.open("/?scale=3&group=head").page
    before = watched.seq
    watched.edit("return self.head(x)", "return self.head(torch.tanh(x))")
    expect(watched.box("tanh")).to_be_visible()
    assert watched.seq > before
    expect(page.locator("#what-if-scale")).to_have_value("3")
    assert "?scale=3&group=head" in page.url
    # A new module may be chosen though it does not run; the list is open while the file is saved.
    field = page.get_by_role("combobox", name="Group")
    field.fill("")
    watched.edit(
        "self.head = nn.Linear(width, 4)",
        "self.spare = nn.Linear(width, width)\n        self.head = nn.Linear(width, 4)",
    )
    expect(page.locator("what-if-controls [role=option]", has_text="spare")).to_be_visible()
    field.press_sequentially("spare")
    page.keyboard.press("Enter")
    expect(page.locator("what-if-controls .count")).to_have_text("0 of 8 weights")


@pytest.mark.long
def test_a_group_that_an_edit_has_taken_away_is_told_and_the_picture_stays(watched):
    page = watched.open("/?scale=3&group=blocks.2").page
    figure = watched.figure("head.linear")
    watched.edit("blocks: int = 3", "blocks: int = 2")
    expect(watched.note).to_contain_text("The new code has no such group; the picture shows the old code.")
    expect(watched.note).to_contain_text("group: 'blocks.2' is not a module")
    expect(page.locator("what-if-controls [data-key=group]")).to_have_class(re.compile("at-fault"))
    expect(watched.box("blocks.2/forward")).to_be_visible()
    assert watched.figure("head.linear") == figure
    # With a group that exists, the new code is shown.
    page.get_by_role("button", name="Reset", exact=True).click()
    expect(watched.box("blocks.2/forward")).to_have_count(0)
    expect(watched.note).to_be_hidden()


@pytest.mark.long
def test_code_that_cannot_be_run_leaves_the_picture_and_says_where(watched):
    page = watched.open("/#select=head.weight").page
    expect(watched.note).to_be_hidden()
    figure = watched.figure("head.linear")
    line = 1 + FILE.read_text().split(SUM)[0].count("\n")
    watched.edit(SUM, "return x + (self.down")
    expect(watched.note).to_contain_text(f"blocks.py:{line}")
    expect(watched.note).to_contain_text("SyntaxError")
    expect(watched.note).to_contain_text("the picture shows the old code")
    assert watched.figure("head.linear") == figure
    # It may be looked at, and changed, meanwhile.
    page.locator("#what-if-scale").fill("2")
    page.keyboard.press("Enter")
    expect(watched.box("head.linear").locator(".value")).not_to_have_text(figure)
    page.get_by_role("button", name="Reset", exact=True).click()
    watched.edit("return x + (self.down", SUM)
    expect(watched.note).to_be_hidden()
    expect(watched.box("head.linear").locator(".value")).to_have_text(figure)
    expect(watched.box("head.weight")).to_have_class(re.compile("selected"))
    # Code that runs but cannot be traced.
    watched.edit("lambda out: functional.mse_loss(out, y)", "lambda out: out")
    expect(watched.note).to_contain_text("The new code cannot be run; the picture shows the old code.")
    expect(watched.note).to_contain_text("scalar")
    expect(page.locator("run-status .error")).to_be_empty()
    assert watched.figure("head.linear") == figure


@pytest.mark.long
def test_a_picture_of_the_old_code_that_comes_late_does_not_hide_why_the_new_code_cannot_be_traced(watched):
    held: list[str | bytes] | None = None

    def relay(socket: WebSocketRoute) -> None:
        server = socket.connect_to_server()

        def pass_on(message: str | bytes) -> None:
            nonlocal held
            is_news = isinstance(message, str) and json.loads(message)["type"] == "model"
            if held is not None and not is_news:
                held.append(message)
                return
            late, held = (held or [], None) if is_news else ([], held)
            for each in (message, *late):
                socket.send(each)

        server.on_message(pass_on)

    watched.spend().route_web_socket(re.compile("/live"), relay)
    page = watched.open().page
    held = []
    page.locator("#what-if-scale").fill("2")
    page.keyboard.press("Enter")
    watched.edit("lambda out: functional.mse_loss(out, y)", "lambda out: out")
    expect(watched.note).to_contain_text("scalar")
    expect(watched.note).to_contain_text("the picture shows the old code")
    assert held is None


@pytest.mark.long
def test_a_pass_that_breaks_off_is_shown_as_far_as_it_went_and_mended_it_is_as_before(watched):
    page = watched.open("/#select=blocks.2.add").page
    watched.edit(RELU, f"{RELU}[:, 1:]")
    expect(watched.note).to_contain_text("The forward pass failed.")
    line = 1 + FILE.read_text().split(RELU)[0].count("\n")
    expect(watched.note).to_contain_text("linear in blocks.0.down: ")
    expect(watched.note).to_contain_text(
        f"blocks.py:{line}: RuntimeError: mat1 and mat2 shapes cannot be multiplied (32x31 and 32x16)"
    )
    failed = page.locator("graph-view .box.failed")
    expect(failed).to_have_count(1)
    expect(failed).to_contain_text("linear")
    expect(failed).to_have_class(re.compile("selected"))
    expect(failed).to_be_visible()
    # It and what it reads are lit, all else is not.
    expect(watched.box("blocks.0.getitem")).to_have_class(re.compile("lit"))
    expect(watched.box("blocks.0.up.linear")).to_have_class(re.compile("dimmed"))
    expect(watched.box("blocks.1/forward")).to_have_count(0)
    # Gone elsewhere, the note leads back.
    watched.box("blocks.0.getitem").click()
    watched.note.get_by_role("button", name="Show where").click()
    expect(failed).to_have_class(re.compile("selected"))
    watched.edit(f"{RELU}[:, 1:]", RELU)
    expect(watched.note).to_be_hidden()
    expect(watched.box("blocks.2.add")).to_have_class(re.compile("selected"))
    expect(failed).to_have_count(0)
    # If no op has raised, the note names the line alone.
    watched.edit("x = self.embed(x)", "x = self.embed(x); raise KeyError('mine')")
    expect(watched.note).to_contain_text("KeyError: 'mine'")
    expect(watched.note.get_by_role("button", name="Show where")).to_be_hidden()
    broken = """class Broken(torch.autograd.Function):
    forward = staticmethod(lambda ctx, x: x * 2)
    backward = staticmethod(lambda ctx, grad_output: grad_output @ torch.ones(3, 3))


class Block(nn.Module):"""
    code = FILE.read_text().replace("class Block(nn.Module):", broken).replace(RELU, "Broken.apply(hidden)")
    watched.file.write_text(code)
    expect(watched.note).to_contain_text("The backward pass failed.")
    expect(watched.note).to_contain_text("cannot be multiplied (32x32 and 3x3)")
    expect(page.locator("graph-view .box.failed.selected")).to_contain_text("matmul")
