"""The profile of a user's model: rows by module path, and theory or the reason why it is missing."""

import re
from itertools import pairwise

import pytest
import torch
from command import command
from figures import significant
from lambda_modules import Parts
from playwright.sync_api import expect
from torch import nn
from torch.nn import functional

from chainrule import trace_model
from chainrule.diagnose.profile import profile
from chainrule.dump.wire import dump_trace

SILENT = {
    "tokens": "Embedding: theory does not cover this layer",
    "norm": "LayerNorm: theory does not cover this layer",
    "head": "Linear: theory needs at least two units",
}


def stack():
    """Layers, some with a theory and some without."""
    return Parts(
        lambda net, ids: net.head((x := net.tokens(ids)) + net.mlp(net.norm(x))),
        tokens=nn.Embedding(50, 64),
        norm=nn.LayerNorm(64),
        mlp=nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64)),
        head=nn.Linear(64, 1),
    )


def traced(model, x):
    return trace_model(model, x, loss=lambda out: out.square().mean())


@pytest.fixture(scope="module")
def traces():
    torch.manual_seed(0)
    ones = torch.ones(8, 8, requires_grad=True)
    deep = [module for _ in range(250) for module in (nn.Linear(8, 8), nn.Tanh())]
    return {
        "stack": traced(stack(), torch.randint(50, (16, 10))),
        "deep": traced(nn.Sequential(*deep), torch.randn(20, 8)),
        "functional": traced(lambda x: functional.relu(x @ ones), torch.randn(20, 8)),
    }


@pytest.fixture(scope="module")
def addresses(traces, tmp_path_factory):
    """The address of each trace."""
    folder = tmp_path_factory.mktemp("own")
    files = {name: folder / f"{name}.json" for name in traces}
    for name, file in files.items():
        file.write_bytes(dump_trace(traces[name]))
    with command("open", *map(str, files.values()), "--no-browser", "--insecure", "--port", "0") as url:
        yield {name: f"{url}/#dump={index}" for index, name in enumerate(files)}


@pytest.fixture
def shown(explorer, addresses):
    """Opens a trace's page and waits for what theory says."""

    def open_dump(name):
        page = explorer.page
        page.goto(addresses[name])
        expect(page.locator("diagnosis-list")).to_have_attribute("data-judged", "")
        expect(page.locator("layer-profile path.dots.forward.activation")).to_have_attribute("d", re.compile("M"))
        return page

    return open_dump


def hover(page, order, name):
    """Point at a dot of the profile by keyboard and give what the read-out says."""
    chart = page.locator("layer-profile .profile-svg")
    chart.focus()
    chart.press("Home")
    readout = page.locator("layer-profile .readout")
    for _ in range(order):
        chart.press("ArrowRight")
    expect(readout).to_contain_text(name)
    return readout


def test_rows_are_called_by_their_modules_and_say_why_they_have_no_theory(shown, traces):
    page = shown("stack")
    part = page.locator("layer-profile .key span", has_text="no theory for 3 of 5 layers")
    expect(part).to_be_visible()
    assert set(part.get_attribute("title").split("\n")) == set(SILENT.values())
    chart = page.locator("layer-profile .profile-svg")
    expect(chart).to_have_attribute("aria-label", re.compile("no theory for 3 of 5 layers"))

    layers = profile(traces["stack"]).layers
    headings = page.locator("layer-table th[scope=rowgroup]")
    expect(headings).to_have_count(len(layers))
    titles = ("tokens (Embedding)", "norm (LayerNorm)", "mlp.0 (Linear)", "mlp.2 (Linear)", "head (Linear)")
    for order, (layer, title) in enumerate(zip(layers, titles, strict=True)):
        readout, heading = hover(page, order, f"{title}: "), headings.nth(order)
        expect(heading).to_have_text(re.compile(rf"^{order + 1} {re.escape(layer.name)} "))
        expect(heading.locator(".note")).to_have_text(SILENT.get(layer.name, "Linear"))
        if layer.name in SILENT:
            expect(readout).to_contain_text(f" · {SILENT[layer.name]}")
            expect(readout).not_to_contain_text("σ 0, expected")
        else:
            expected = layer.expected["activation_std"]
            low, high = map(significant, expected.band)
            expect(readout).to_contain_text(
                f"σ {significant(layer.activation.std)}, expected {significant(expected.value)} ({low}–{high})"
            )
            expect(readout).not_to_contain_text("no theory")

    page.locator("layer-table .link", has_text="layer_norm").click()
    comparison = page.locator("inspector-panel .comparison")
    expect(comparison.locator("h3")).to_contain_text("Layer 2: norm")
    expect(comparison.locator(".hint")).to_have_text(f"{SILENT['norm']}.")
    page.go_back()
    page.locator("layer-table .link", has_text="gelu").click()
    expected = significant(layers[2].expected["activation_std"].value)
    expect(comparison.locator("tr[data-quantity=activation_std] b")).to_have_text(expected)
    expect(comparison.locator("tr.rule").first).to_contain_text("with the preactivation's mean m and std s")


@pytest.mark.long
def test_hundreds_of_rows_can_be_read_and_only_those_in_sight_are_there(shown, traces):
    page = shown("deep")
    trace = traces["deep"]
    layers = trace.layers
    assert len(layers) == 250
    labels = page.locator("layer-profile .layer-label")
    assert 5 <= labels.count() <= 60
    boxes = [box for label in labels.all() if (box := label.bounding_box())]
    ends = sorted((box["x"], box["x"] + box["width"]) for box in boxes)
    assert all(end <= start for (_, end), (start, _) in pairwise(ends))
    # A stripe as wide as one of so many layers would flicker.
    assert page.locator("layer-profile .band").count() <= 13
    readout = hover(page, 0, "input")
    page.locator("layer-profile .profile-svg").press("End")
    expect(readout).to_contain_text(f"{layers[-1].name} (Linear): 499.tanh σ ")

    # Input, and of each layer its heading, its weight and its activation; beneath the line of titles.
    total = 1 + 3 * len(layers)
    expect(page.locator("layer-table table")).to_have_attribute("aria-rowcount", str(total + 1))
    first = page.locator("layer-table tr[aria-rowindex='2']")
    expect(first).to_be_visible()
    rows = page.locator("layer-table tbody tr[aria-rowindex]")
    assert rows.count() < total / 2
    assert page.locator("layer-table").evaluate("(table) => table.scrollHeight") > total * 15
    page.locator("layer-table tbody").last.scroll_into_view_if_needed()
    last = page.locator(f"layer-table tr[aria-rowindex='{total + 1}']")
    last.scroll_into_view_if_needed()
    expect(last.locator("td").nth(2)).to_have_text(significant(trace.statistics[layers[-1].activation].std))
    expect(first).to_have_count(0)
    assert rows.count() < total / 2
    last.locator(".link").click()
    expect(page.locator("inspector-panel h2")).to_contain_text("tanh")


@pytest.mark.long
def test_code_without_a_module_has_rows_too(shown, traces):
    page = shown("functional")
    (layer,) = traces["functional"].layers
    reason = profile(traces["functional"]).layers[0].reason
    expect(hover(page, 1, layer.name)).to_contain_text(reason)
