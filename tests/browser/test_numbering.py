"""Layers have one numbering, from 1: in boxes and their headers, tables, panels, and answers of the API."""

import re
from pathlib import Path

import pytest
from command import command
from playwright.sync_api import expect

MODEL = Path(__file__).resolve().parents[1] / "shared" / "user_models" / "deep_mlp.py"
# Tensor → the number that stands at its row or above it.
ROWS = """() => {
    const numbers = {};
    let number = 0;
    for (const row of document.querySelectorAll("layer-table tbody tr")) {
        number = parseInt(row.querySelector("th").textContent) || number;
        if (row.dataset.tensor) numbers[row.dataset.tensor] ??= number;
    }
    return numbers;
}"""
ASKED = "(path) => fetch(path).then((answer) => answer.json())"


@pytest.fixture(scope="module")
def own():
    """The link of a server that explores 50 layers of a user's own."""
    with command("explore", f"{MODEL}:make", "--no-browser", "--port", "0") as link:
        yield link


@pytest.mark.long
@pytest.mark.parametrize("query", ["", "preset=deep-exploding", "own"])
def test_a_layer_has_one_number_everywhere(explorer, request, query):
    page = explorer.page
    if query == "own":
        link = request.getfixturevalue("own")
        page.goto(link)
        page.wait_for_selector("run-status[data-seq]")
        explorer.url, api, query = link.partition("/?")[0], "/api/v1/model/{}", ""
    else:
        explorer.open(f"/?{query}")
        api = f"/api/v1/{{}}?{query}"
    dump = page.evaluate(ASKED, api.format("trace.json"))
    layers = dump["layers"]
    numbers = list(range(1, len(layers) + 1))
    assert [layer["index"] for layer in layers] == numbers
    profile = page.evaluate(ASKED, api.format("profile.json"))
    assert [(layer["index"], layer["name"]) for layer in profile["layers"]] == [
        (layer["index"], layer["name"]) for layer in layers
    ]
    for fault in dump["faults"]:
        assert set(fault["layers"]) <= set(numbers)

    paths = {module["id"]: module["path"] for module in dump["modules"]}
    producers = {op["id"]: f"{paths[op['module']]}/forward" for op in dump["ops"]}
    tensors = {tensor["id"]: tensor for tensor in dump["tensors"]}
    in_table = page.evaluate(ROWS)
    for layer in (layers[0], layers[len(layers) // 2], layers[-1]):
        number, tensor = layer["index"], tensors[layer["preactivation"]]
        assert in_table[tensor["name"]] == number
        # The box, as it is read out, and the header when it is open.
        box = producers[tensor["producer"]]
        show(explorer, query, f"level=layer&fold=off&toggled={box}&select={box}")
        element = page.locator(f'graph-view .box[data-id="{box}"]')
        assert f", layer {number}," in (element.get_attribute("aria-label") or "")
        expect(page.locator("inspector-panel")).to_contain_text(f"in the profilelayer {number}")
        # The inspector of the tensor.
        show(explorer, query, f"select={tensor['name']}")
        expect(page.locator("inspector-panel .comparison h3")).to_have_text(re.compile(rf"^Layer {number}(?!\d)"))


def show(explorer, query, fragment):
    # An address that differs in its fragment alone would not be loaded.
    explorer.page.goto("about:blank")
    explorer.open(f"/?{query}#{fragment}")
