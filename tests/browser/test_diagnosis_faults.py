"""Faults of the user's model or of a dump in the diagnosis; the gradient check of a Function."""

import dataclasses
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from command import command
from lambda_modules import Parts
from playwright.sync_api import Page, expect
from source_lines import line_of
from torch import nn

from chainrule.diagnose.evidence import Evidence
from chainrule.diagnose.faults import find_faults
from chainrule.dump.wire import dump_trace
from chainrule.trace import trace_model
from chainrule.web.view import View, explore


class Wrong(torch.autograd.Function):
    """exp x, of which the backward knows the first two terms."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return (1 + x) * gradient


class Faulty(nn.Module):
    """An encoder that is detached, a layer that nobody calls, and a Function whose gradient is wrong."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 6), nn.Tanh())
        self.head = nn.Linear(6, 3)
        self.spare = nn.Linear(2, 2)

    def forward(self, x):
        hidden = self.encoder(x).detach()
        return Wrong.apply(self.head(hidden))


def faulty():
    torch.manual_seed(0)
    return Faulty(), torch.randn(5, 4)


def faulty_dump():
    model, x = faulty()
    trace = trace_model(model, x, loss=torch.sum)
    evidence = Evidence()
    evidence.begins(model)
    evidence.ended()
    return dump_trace(dataclasses.replace(trace, faults=find_faults(trace, evidence)))


@pytest.fixture
def viewed(explorer: Any) -> Iterator[Callable[..., Page]]:
    views: list[View] = []

    def open_view(model: nn.Module, *inputs: Any, **options: Any) -> Page:
        view = explore(model, *inputs, browser=False, **options)
        views.append(view)
        explorer.url = view.url.partition("/?")[0].rstrip("/")
        explorer.page.goto(view.url)
        explorer.page.wait_for_selector("run-status[data-seq]")
        return explorer.page

    yield open_view
    for view in views:
        view.close()


def open_box(page, item):
    page.evaluate("(id) => document.dispatchEvent(new CustomEvent('box-open', { detail: { id } }))", item)


def test_the_faults_of_a_model_are_listed_and_lead_to_their_places(viewed):
    model, x = faulty()
    page = viewed(model, x, loss=torch.sum)
    faults = page.locator("diagnosis-list .fault")
    expect(faults).to_have_count(3)
    expect(page.locator("diagnosis-list .state")).to_contain_text("3 faults")
    kinds = [fault.get_attribute("data-kind") for fault in faults.all()]
    assert kinds == ["wrong_backward", "detach", "no_gradient"]
    wrong = faults.nth(0)
    expect(wrong.locator("b")).to_have_text("wrong gradient")
    line = line_of(Path(__file__), "Wrong.apply(")
    expect(wrong.locator(".place")).to_have_text(f"test_diagnosis_faults.py:{line}")
    cut = faults.nth(1)
    expect(cut.locator("b")).to_have_text("cut")
    expect(cut.locator(".place")).to_have_text(re.compile(r"test_diagnosis_faults\.py:\d+"))
    expect(cut.locator(".mend")).to_contain_text("Remove detach")
    cut.locator("button.said").click()
    expect(page.locator("inspector-panel h2")).to_have_text("detach")
    # An op that did not run has no place in the graph.
    spare = faults.filter(has_text="spare (2 parameters)")
    expect(spare.locator("span.said")).to_have_text(
        "spare (2 parameters): no gradient, unused: no op of this pass reads it"
    )
    expect(spare.locator("button")).to_have_count(0)

    # An ordinary op has no gradient check. The check of the wrong Function shows its Jacobian.
    open_box(page, "head/forward")
    expect(page.locator("inspector-panel h2")).to_be_visible()
    check = page.locator("inspector-panel .gradcheck")
    expect(check).to_have_count(0)
    open_box(page, "Wrong/forward")
    check.locator("button").click()
    expect(check.locator(".verdict")).to_contain_text("not correct")
    hidden = torch.tanh(model.encoder[0](x)).detach()
    z = model.head(hidden).detach()
    worst = float((1 + z - z.exp()).abs().max())
    shown = check.locator("tbody tr td").nth(1).text_content()
    assert float(shown.replace("−", "-")) == pytest.approx(worst, rel=5e-3)
    expect(check.locator("p.bad:not(.verdict)").first).to_contain_text("Worst: ∂out[")
    expect(check.locator("button")).to_have_text("Check again")


@pytest.mark.long
def test_the_gradient_check_explains_a_kink(viewed):
    class Rectified(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.relu()

        @staticmethod
        def backward(ctx, gradient):
            return gradient * (ctx.saved_tensors[0] > 0)

    model = Parts(lambda self, x: Rectified.apply(self.scale * x), scale=nn.Parameter(torch.ones(2)))
    page = viewed(model, torch.tensor([1.0, 0.0]), loss=torch.sum)
    open_box(page, "Rectified/forward")
    check = page.locator("inspector-panel .gradcheck")
    check.locator("button").click()
    expect(check.locator("p.bad:not(.verdict)").first).to_have_text(
        "Worst: ∂out[1]/∂x[1] is 0 in backward, but 0.500 by finite differences. The forward has a kink here: the "
        "differences from the left (0) and the right (1) disagree. Move the input."
    )


def test_what_was_not_checked_is_not_called_healthy(explorer):
    dump = explorer.open("/").dump()
    said = {"message": "the backward of f was not checked: it took too long", "module": None, "op": None}
    unchecked = {**said, "kind": "wrong_backward", "tensor": None, "source": None, "remedy": None}
    dump["faults"] = [{**unchecked, "level": "unchecked", "layers": [], "rule": None}]
    page = explorer.page
    file = {"name": "f.json", "mimeType": "application/json", "buffer": json.dumps(dump).encode()}
    page.set_input_files("dump-opener input[type=file]", file)
    expect(page.locator("diagnosis-list .state")).to_have_text("1 check not made")
    item = page.locator("diagnosis-list .fault.unchecked")
    expect(item.locator(".kind")).to_have_text("wrong gradientnot checked")
    expect(item.locator(".said")).to_have_text(said["message"])
    expect(page.locator("diagnosis-list.healthy")).to_have_count(0)
    expect(page.locator("inspector-panel .first-bad")).to_be_hidden()


@pytest.mark.long
def test_they_follow_the_slider(viewed):
    torch.manual_seed(0)
    model = nn.Sequential(*[layer for _ in range(4) for layer in (nn.Linear(16, 16), nn.Tanh())])
    page = viewed(model, torch.randn(8, 16), loss=torch.sum)
    faults = page.locator("diagnosis-list .fault")
    expect(page.locator("diagnosis-list .state")).not_to_be_empty()
    expect(faults).to_have_count(0)
    page.goto(page.url.partition("?")[0] + "?scale=100")
    expect(page.locator('diagnosis-list .fault[data-kind="saturated"]').first).to_be_visible()
    page.locator('diagnosis-list .fault[data-kind="saturated"] button.said').first.click()
    expect(page.locator("inspector-panel h2")).to_contain_text("tanh")
    # A tensor that a closed box hides is in sight afterwards.
    expect(page.locator("graph-view .box.selected, graph-view .box[aria-selected=true]").first).to_be_visible()


def test_a_fault_keeps_its_open_fold_and_the_focus_while_its_figures_change(explorer):
    page = explorer.open("/?preset=deep-exploding#tab=controls").page
    fault = page.locator('diagnosis-list .fault[data-kind="exploding"]')
    fault.locator("summary").click()
    before = fault.locator(".said").inner_text()
    slider = page.locator("spec-controls .slider")
    slider.evaluate("(input) => { input.value = 0.1; input.dispatchEvent(new Event('input', { bubbles: true })); }")
    slider.dispatch_event("change")
    explorer.idle()
    expect(fault.locator(".said")).not_to_have_text(before)
    expect(fault.locator(".said")).to_have_text(re.compile("exploding|grow|×|layer", re.I))
    expect(fault.locator(".rule")).to_be_visible()
    expect(fault.locator("summary")).to_be_focused()


@pytest.mark.long
def test_what_starts_at_zero_is_a_note_on_a_healthy_net(viewed):
    """A branch whose last weights are zero, as LoRA and residual blocks are begun: its first layer has no gradient."""
    torch.manual_seed(0)
    model = Parts(
        lambda net, x: net.head((hidden := net.embed(x)) + net.up(net.down(hidden))),
        embed=nn.Linear(8, 8),
        down=nn.Linear(8, 2, bias=False),
        up=nn.Linear(2, 8, bias=False),
        head=nn.Linear(8, 4),
    )
    nn.init.zeros_(model.up.weight)
    page = viewed(model, torch.randn(16, 8), loss=lambda out: out.square().mean())
    state = page.locator("diagnosis-list .state")
    expect(state).to_have_text(re.compile("^healthy.*, 1 note$"))
    note = page.locator("diagnosis-list .fault.note")
    expect(note).to_have_count(1)
    expect(note.locator(".kind")).to_have_text("starts at zeronote")
    expect(page.locator("inspector-panel .first-bad")).to_be_hidden()


@pytest.mark.long
def test_a_model_without_parameters_has_no_layers_and_nothing_to_scale(viewed):
    page = viewed(Parts(lambda _, x: x.sin().sum()), torch.randn(5, 4, requires_grad=True))
    expect(page.locator("diagnosis-list .state")).to_have_text("This pass ran no module with parameters.")
    expect(page.locator("what-if-controls .count")).to_have_text("no weights")


def test_a_pass_that_breaks_off_is_told_first(viewed):
    model = nn.Sequential(nn.Linear(4, 6), nn.Linear(5, 2))
    page = viewed(model, torch.randn(3, 4), loss=torch.sum)
    first = page.locator("diagnosis-list .fault").first
    expect(first).to_have_attribute("data-kind", "failed")
    expect(first.locator("button.said")).to_contain_text("shapes cannot be multiplied")
    first.locator("button.said").click()
    expect(page.locator("inspector-panel h2")).to_have_text("linear")


@pytest.mark.long
def test_from_step_to_step_faults_are_counted_once(explorer, tmp_path):
    files = [tmp_path / f"step{step}.json" for step in range(3)]
    for file in files:
        file.write_bytes(faulty_dump())
    page = explorer.page
    # The later dumps have no theory, and the page must not wait for it.
    page.route("**/dump.json*what=theory*", lambda route: None if "index=" in route.request.url else route.continue_())
    with command("open", *map(str, files), "--no-browser", "--insecure", "--port", "0") as url:
        page.goto(url)
        expect(page.locator("diagnosis-list")).to_have_attribute("data-judged", "")
        state = page.locator("diagnosis-list .state")
        expect(state).to_contain_text("2 faults")
        said = state.text_content()
        page.locator("dump-scrubber input").focus()
        for key, step in (("Right", 1), ("Right", 2), ("Left", 1)):
            page.keyboard.press(f"Arrow{key}")
            expect(page.locator("dump-note .file")).to_contain_text(f"step{step}.json")
            assert state.text_content() == said
        page.goto("about:blank")


@pytest.mark.long
def test_a_dump_shows_the_faults_that_were_found_when_it_was_made(explorer):
    dump = json.loads(faulty_dump())
    page = explorer.open("/").page
    faults = page.locator("diagnosis-list .fault")
    for count in (2, 0):
        file = {"name": "f.json", "mimeType": "application/json", "buffer": json.dumps(dump).encode()}
        page.set_input_files("dump-opener input[type=file]", file)
        expect(faults).to_have_count(count)
        # No server has this model: nothing of it can be checked.
        open_box(page, "Wrong/forward")
        expect(page.locator("inspector-panel .gradcheck")).to_have_count(0)
        dump.pop("faults", None)
