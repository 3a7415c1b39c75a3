"""Colours of boxes: text legible on every shade, colours in the order of the figures, one held range."""

import re
from pathlib import Path

TOKENS = Path(__file__).parents[2] / "static" / "css" / "tokens.css"

PAINT = """async (m, { dump, kind, range = null, scheme = "light", hidden = null, edges = "", asked }) => {
    const { pictureOfDump } = await import("/static/core/picture.js");
    const { buildGraph, find } = await import("/static/core/graph/graph.js");
    const picture = pictureOfDump(dump, 1, "k");
    const graph = buildGraph(picture.topology);
    const row = picture.rows.get(dump.tensors.find(({ name }) => name === hidden)?.id);
    if (hidden !== null) picture.hidden = { row, rows: new Set([row]), loss: false, tensor: hidden, statistic: "std" };
    const paint = m.paintwork({ kind, edges, graph, picture, theory: null, range, scheme });
    const items = asked.map((id) => find(graph, id));
    return {
        fills: items.map(({ kind, index, half }) => paint.fill(kind, index, half)),
        widths: items.map(({ kind, index }) => (kind === "tensor" ? paint.width(index) : null)),
        legend: paint.legend, range: m.rangeOf(paint), why: m.whyNot(kind, graph), shades: m.shadesOf(scheme),
    };
}"""


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_text_is_legible_on_every_shade_and_lightness_runs_one_way(module):
    inks = re.findall(r"--ink: (#\w{6})", TOKENS.read_text())
    papers = re.findall(r"--paper: (#\w{6})", TOKENS.read_text())
    for scheme, ink, paper in zip(("light", "dark"), inks, papers, strict=True):
        shades = module("lab/overlay.js", "(m, scheme) => m.shadesOf(scheme)", scheme)
        bad = module("lab/overlay.js", "(m, scheme) => m.NON_FINITE[scheme]", scheme)
        # WCAG 2.2, 1.4.3: normal text.
        assert min(contrast(shade, ink) for shade in [*shades, bad]) >= 4.5
        # Away from the paper, so that greater figures stand out, and told apart without hues.
        distance = [contrast(shade, paper) for shade in shades]
        assert distance == sorted(distance)
        assert distance[-1] / distance[0] > 1.8


def column(dump, name, statistic):
    tensor = next(tensor["id"] for tensor in dump["tensors"] if tensor["name"] == name)
    return dump["statistics"][statistic][dump["statistics"]["tensor"].index(tensor)]


def test_colours_follow_the_figures(dump_of, module):
    dump = dump_of("")
    names = ["x", "w1", "l1", "l2", "out", "l1.g", "w1.g", "x.g"]

    def paint(**options):
        return module("lab/overlay.js", PAINT, {"dump": dump, "asked": names, **options})

    answer = paint(kind="std")
    shade = [answer["shades"].index(fill) for fill in answer["fills"]]
    figures = [column(dump, name, "std") for name in names]
    order = sorted(range(len(names)), key=figures.__getitem__)
    assert [shade[at] for at in order] == sorted(shade)
    assert answer["legend"]["isLog"]
    low, high = answer["range"]
    assert low <= min(figures)
    assert high >= max(figures)

    # A closed box has what it puts out: Relu l2, its backward half l1.g; the op within the same.
    boxes = paint(kind="std", asked=["l2", "layers.1/forward", "n2", "l1.g", "layers.1/backward"])["fills"]
    assert len(set(boxes[:3])) == len(set(boxes[3:])) == 1
    # A group has the largest of its norms and the sum of its times.
    norms = paint(kind="gradient_norm", asked=["w1.g", "layers.0/backward", "w1", "x.g"])["fills"]
    assert norms[0] == norms[1] == norms[2] != norms[3]

    # With a held range, a figure beyond it has the last colour; a box without a figure has none.
    held = paint(kind="std", range=[1e-6, 1e-3])
    assert set(held["fills"]) == {held["shades"][-1]}
    assert held["range"] == [1e-6, 1e-3]
    assert paint(kind="std", hidden="l2")["fills"][3] is None
    assert paint(kind="std", scheme="dark")["fills"] != answer["fills"]
    widths = paint(kind="", edges="size")["widths"]
    assert widths[0] > widths[2] > widths[1] > 0
    assert widths[2] == widths[3]


def test_what_is_not_finite_has_a_colour_beside_the_ramp_and_absent_times_a_reason(dump_of, module):
    dump = dump_of("preset=deep-exploding")
    options = {"dump": dump, "kind": "std", "asked": ["l1", "out", "l1.g"]}
    answer = module("lab/overlay.js", PAINT, options)
    assert answer["legend"]["words"][0][1] == "NaN or Inf"
    bad = answer["legend"]["words"][0][0]
    assert answer["fills"][0] in answer["shades"]
    assert answer["fills"][1:] == [bad, bad]
    health = module("lab/overlay.js", PAINT, options | {"kind": "health", "asked": ["l1", "out", "loss/forward"]})
    assert health["fills"][0] is None
    assert health["fills"][1] == health["fills"][2] == dict(map(reversed, health["legend"]["words"]))["non-finite"]
    assert health["range"] is None
    timeless = dump | {"timing": {}}
    answer = module("lab/overlay.js", PAINT, options | {"dump": timeless, "kind": "time"})
    assert "does not say" in answer["why"]
    assert answer["fills"] == [None] * 3
    assert answer["legend"] is None
