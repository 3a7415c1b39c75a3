"""The inspector: what an op computes, how its gradient goes back and why, its values, and its way to the loss."""

import json
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from lambda_modules import Parts, recorded
from playwright.sync_api import expect
from waiting import expect_when_idle

FOUNDATIONS = Path(__file__).parents[2] / "app"


def test_an_op_with_its_sizes_its_code_and_its_rule(explorer):
    explorer.open("/#select=n0")
    page = explorer.page
    panel = page.locator("inspector-panel")
    source = explorer.dump("")["ops"][0]["source"]
    expect(panel.locator("h2")).to_have_text("matmul")
    expect(panel.locator(".formula code").nth(0)).to_have_text("layers.0.matmul = x @ w1")
    expect(panel.locator(".formula code").nth(1)).to_have_text("(200×50) = (200×100) @ (100×50)")
    facts = panel.locator(".facts")
    expect(facts).to_contain_text("2·200·100·50 = 2,000,000")
    assert re.search(r"step\s*1 of 27", facts.inner_text())
    # The line is that of the file, and stands between its neighbours.
    lines = (FOUNDATIONS / source["file"]).read_text().splitlines()
    lit = panel.locator(".source .line.lit")
    expect(lit).to_contain_text(lines[source["line"] - 1].strip())
    expect(panel.locator(".source pre")).to_contain_text(lines[source["line"]].strip())

    rule = panel.locator(".gradient-rule")
    expect(rule.locator(".formula code").nth(0)).to_have_text("∂L/∂x = ∂L/∂layers.0.matmul @ w1ᵀ")
    expect(rule.locator(".formula code").nth(3)).to_have_text("(100×50) = (200×100)ᵀ @ (200×50)")
    rule.locator("summary").click()
    expect(rule.locator("ol")).to_contain_text("yᵢⱼ = Σₖ xᵢₖ · wₖⱼ")
    rule.get_by_role("button", name="Check the general rule").click()
    expect(rule.locator(".checked")).to_contain_text("32 elements moved by ±10⁻⁵")

    # A closed layer is one function with one rule, on the way back as well.
    page.evaluate("location.hash = 'select=layers.0/backward'")
    expect(rule.locator("h3 small")).to_have_text("Linear layer, weight (in, out)")
    expect(rule.locator(".formula code:first-child")).to_have_text(
        ["∂L/∂x = ∂L/∂l1 @ w1ᵀ", "∂L/∂w1 = xᵀ @ ∂L/∂l1", "∂L/∂b1 = sum(∂L/∂l1, dim=0)"]
    )
    expect(panel.locator(".formula code").first).to_have_text("x.g = l1.g @ w1ᵀ")


def test_what_is_connected_is_asked_for_and_the_way_is_walked(explorer):
    explorer.open("/#select=w1")
    page = explorer.page
    page.evaluate(
        """() => {
            window.heard = [];
            const hear = ({ type, detail }) => window.heard.push([type, detail]);
            for (const type of ["reach-change", "path-light"]) document.addEventListener(type, hear);
        }"""
    )
    panel = page.locator("inspector-panel")
    panel.get_by_role("button", name="Down", exact=True).click()
    panel.get_by_label("Distance in ops").select_option("3")
    expect_when_idle(page, "() => location.hash.includes('reach=down3')")
    expect(panel.get_by_role("button", name="Down", exact=True)).to_have_attribute("aria-pressed", "true")
    panel.get_by_role("button", name="Highlight it in the graph").click()
    heard = page.evaluate("window.heard")
    assert [kind for kind, _ in heard] == ["reach-change", "reach-change", "path-light"]
    assert heard[1][1] == {"direction": "down", "hops": 3}
    assert {"w1", "l2.g", "layers.0/backward"} <= set(heard[2][1]["ids"])

    path = panel.locator(".path")
    expect(path.locator(".chain")).to_have_text("∂loss/∂w1 = ∂loss/∂out · ∂out/∂l2 · ∂l2/∂l1 · ∂l1/∂w1")
    expect(path.locator("tbody tr:not(.rule)")).to_have_count(4)
    expect(path.locator("thead th")).to_have_text(["factor", "gradient RMS", "change"])
    path.locator(".chain .link").nth(1).click()
    expect(panel.locator("h2")).to_have_text("l2.g")
    # A gradient shows the way of its tensor.
    expect(path.locator(".chain")).to_have_text("∂loss/∂l2 = ∂loss/∂out · ∂out/∂l2")


def test_values_are_those_of_the_server_and_follow_the_run(explorer, server_url):
    asked = []
    explorer.spend().on("request", lambda request: asked.append(request.url) if "tensor.json" in request.url else None)
    explorer.open("/?widths=6,4,1&batch=70&scale=3#select=l1")
    page = explorer.page
    values = page.locator("inspector-panel value-map")
    assert asked == []
    page.locator("inspector-panel .values > summary").click()
    expect(values.locator(".readout")).to_have_text("64 × 4 values")
    values.locator(".twin > summary").click()

    query = "widths=6,4,1&batch=70&scale=3&name=l1&rows=0:64&cols=0:4"
    rows = page.request.get(f"{server_url}/api/v1/tensor.json?{query}").json()["values"]
    shown = [float(text.replace("−", "-")) for text in values.locator("td").all_inner_texts()]
    assert shown == pytest.approx([value for row in rows for value in row], rel=6e-3, abs=1e-12)
    values.get_by_role("button", name="rows after").click()
    expect(values.locator(".pager")).to_contain_text("rows 64–69 of 70")
    expect(values.locator("tbody tr")).to_have_count(6)
    canvas = values.locator("canvas")
    canvas.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    expect(values.locator(".readout")).to_contain_text("[65, 1] = ")

    # Another run is asked for once it rests: once, whatever lies on the way.
    page.evaluate("location.hash = 'select=w1'")
    expect(values.locator(".readout")).to_have_text("6 × 4 values")
    values.locator(".twin > summary").click()
    first = float(values.locator("td").first.inner_text().replace("−", "-"))
    before = len(asked)
    page.fill("#spec-scale", "30")
    page.keyboard.press("Enter")
    explorer.idle()
    assert float(values.locator("td").first.inner_text().replace("−", "-")) == pytest.approx(10 * first, rel=1e-2)
    assert len(asked) == before + 1


@pytest.mark.long
def test_the_first_bad_tensor_is_a_click_away(explorer, profile_of):
    explorer.open("/?preset=deep-exploding")
    page = explorer.page
    dump = explorer.dump()
    layer = dump["layers"][profile_of("preset=deep-exploding")["first_inf_layer"] - 1]
    (first,) = [tensor["name"] for tensor in dump["tensors"] if tensor["id"] == layer["preactivation"]]
    button = page.locator("inspector-panel .first-bad")
    assert dump["faults"][0]["tensor"] == layer["preactivation"]
    (share,) = re.findall(r": ([\d.]+ % Inf)", dump["faults"][0]["message"])
    expect(button).to_have_text(f"First bad tensor: {first}, {share}")
    button.click()
    expect(page.locator("inspector-panel h2")).to_have_text(first)


class Causal(torch.nn.Module):
    """Attention of one head, masked by -Inf; of what comes out the function given is taken."""

    def __init__(self, after):
        super().__init__()
        self.qkv = torch.nn.Linear(8, 24)
        self.register_buffer("mask", torch.full((6, 6), -torch.inf).triu(1))
        self.after = after

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return self.after((q @ k.transpose(-2, -1) + self.mask).softmax(-1) @ v)


@pytest.mark.long
@pytest.mark.parametrize(("after", "bad"), [(torch.tanh, None), (torch.log, "log")])
def test_a_mask_that_softmax_absorbs_is_not_the_first_bad_tensor(explorer, tmp_path, after, bad):
    torch.manual_seed(0)
    dump = recorded(Causal(after), torch.randn(3, 6, 8), loss=torch.sum)
    # In the mask, and in the scores that it is added to.
    assert sum(count > 0 for count in dump["statistics"]["neginf"]) >= 2
    path = tmp_path / "causal.json"
    path.write_text(json.dumps(dump))
    page = explorer.open().page
    page.set_input_files("dump-opener input[type=file]", path)
    expect(page.locator("dump-note .file")).to_have_text("causal.json")
    button = page.locator("inspector-panel .first-bad")
    expect(page.locator("inspector-panel .facts")).to_contain_text("216 in 2 tensors")
    causes = page.locator("layer-profile .cause")
    if bad is None:
        expect(button).to_be_hidden()
        expect(causes).to_have_count(0)
    else:
        expect(causes).not_to_have_count(0)
        expect(button).to_contain_text(f"First bad tensor: {bad}, ")
        button.click()
        expect(page.locator("inspector-panel h2")).to_have_text(bad)


def block(net, x):
    """One block of a GPT, its parts as they are in the field."""
    q, k, v = (part.view(2, 4, 2, 4).transpose(1, 2) for part in net.qkv(net.norm(x)).split(8, -1))
    mixed = F.scaled_dot_product_attention(q, k, v)
    return x + net.out(mixed.transpose(1, 2).reshape(2, 4, 8))


# How far apart the texts of neighbouring cells stand, row by row.
GAPS = """() => {
    const extent = (cell) => {
        const range = document.createRange();
        range.selectNodeContents(cell);
        return range.getBoundingClientRect();
    };
    return [...document.querySelectorAll("layer-table tr")].flatMap((row) => {
        const extents = [...row.cells].filter((cell) => cell.textContent !== ""
            && cell.querySelector(".visually-hidden") === null).map(extent);
        return extents.slice(1).map((right, order) => right.left - extents[order].right);
    });
}"""


@pytest.mark.parametrize(
    "viewport",
    [(1440, 900), pytest.param((1024, 768), marks=pytest.mark.long), pytest.param((390, 844), marks=pytest.mark.long)],
)
def test_no_figure_of_the_overview_is_printed_over_another(explorer, viewport):
    page = explorer.page
    page.set_viewport_size({"width": viewport[0], "height": viewport[1]})
    explorer.open("/?widths=100x51&scale=3.24")
    if viewport[0] < 900:
        page.get_by_role("tab", name="Inspector", exact=True).click()
    # Rows out of sight are filled once the picture rests.
    explorer.idle()
    page.wait_for_function(
        "() => document.querySelector('layer-table tbody:last-child tr:last-child').cells[3].textContent"
    )
    gaps = page.evaluate(GAPS)
    assert len(gaps) >= 3 * page.locator("layer-table tbody tr").count()
    assert min(gaps) >= 2
    # The longest that a float32 is written: two signs and an exponent of two digits. A std has no sign of its own.
    page.locator("layer-table tbody td:nth-child(n + 3)").evaluate_all(
        "(cells) => cells.forEach((cell) => (cell.textContent = `${cell.cellIndex === 2 ? '−' : ''}2.46e-38`))"
    )
    assert min(page.evaluate(GAPS)) >= 2


def test_a_dump_of_any_model_is_inspected_without_a_spec(explorer, tmp_path):
    torch.manual_seed(0)
    layers = {"norm": torch.nn.LayerNorm(8), "qkv": torch.nn.Linear(8, 24), "out": torch.nn.Linear(8, 8)}
    dump = recorded(Parts(block, **layers), torch.randn(2, 4, 8), loss=lambda out: out.pow(2).mean())
    path = tmp_path / "gpt.json"
    path.write_text(json.dumps(dump))
    explorer.open()
    page = explorer.page
    page.set_input_files("dump-opener input[type=file]", path)
    panel = page.locator("inspector-panel")
    expect(panel.locator(".facts")).to_contain_text("304 in 6 tensors")
    names = {op["name"]: op["id"] for op in dump["ops"]}

    def inspect(item):
        page.evaluate(
            "(id) => document.body.dispatchEvent(new CustomEvent('box-select', { detail: { id }, bubbles: true }))",
            item,
        )

    inspect(names["scaled_dot_product_attention"])
    expect(panel.locator(".gradient-rule h3 small")).to_have_text("Scaled dot-product attention")
    expect(panel.locator(".gradient-rule .shapes").nth(2)).to_have_text("(2×2×4×4) = Pᵀ @ (2×2×4×4)")
    expect(panel.locator(".facts")).to_contain_text("4·2·2·4·4·4 = 1,024")
    inspect(names["NativeLayerNormBackward0"])
    expect(panel.locator(".gradient-rule h3 small")).to_have_text("Layer normalization")
    inspect("qkv.weight")
    expect(panel.locator(".path .hint")).to_have_count(0)
    expect(panel.locator(".path .chain")).to_contain_text("∂qkv.linear/∂qkv.weight")
    panel.locator(".values > summary").click()
    expect(panel.locator("value-map .hint")).to_have_text("A dump contains statistics, not values.")
    expect(panel.locator("value-map canvas")).to_be_hidden()
