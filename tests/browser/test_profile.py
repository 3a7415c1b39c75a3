"""The profile of the layers: what it draws against the dump, what it says of ±Inf and NaN, and how it is walked."""

import json
import math
import re
from urllib.request import urlopen

import pytest
from playwright.sync_api import expect

pytestmark = pytest.mark.browser

DEEP = "widths=100x51&last_activation=true&bias=false"
EXPLODING = "preset=deep-exploding"

CAUSES = """(m, dump) => import("/static/core/picture.js").then(({ pictureOfDump }) =>
    m.firstNonFinite(pictureOfDump(dump, 1, "k")))"""

# The points of a statistic with what a picture and a profile say of them: [layer, series, side, measured, run].
FIGURES = """(m, { dump, profile, statistic }) => import("/static/core/picture.js").then(({ pictureOfDump }) => {
    const picture = pictureOfDump(dump, 1, "k");
    const pinned = { query: "", profile };
    const points = m.pointsOf(picture.topology, statistic);
    const plain = (reading) => reading && { ...reading };
    return ["forward", "backward"].flatMap((side) => {
        const { measured, run } = m.figuresOf(points, statistic, side, { picture, theory: null, pinned });
        const both = (order) => [plain(measured[order]), plain(run[order])];
        return points.map(({ layer, series }, order) => [layer, series, side, ...both(order)]);
    });
})"""


@pytest.fixture
def profile_of(server_url):
    """The profile of a query."""

    def fetch(query):
        with urlopen(f"{server_url}/api/v1/profile.json?{query}") as answer:
            return json.load(answer)

    return fetch


class Columns:
    """The statistics of a dump by tensor name."""

    def __init__(self, dump):
        self.rows = {tensor: row for row, tensor in enumerate(dump["statistics"]["tensor"])}
        self.ids = {tensor["name"]: tensor["id"] for tensor in dump["tensors"]}
        self.columns = dump["statistics"]

    def __call__(self, name, column):
        return self.columns[column][self.rows[self.ids[name]]]

    def largest(self, name):
        return max(abs(self(name, "min")), abs(self(name, "max")))


# -------------------------------------------------------------------------------------------------- ±Inf and NaN


@pytest.mark.parametrize(
    ("query", "limit", "product"),
    [
        (EXPLODING, "float32's largest number, 3.40e38", ("l37", "w38", "l37 @ w38", 100)),
        (f"{EXPLODING}&dtype=bfloat16", "bfloat16's largest number, 3.39e38", ("l37", "w38", "l37 @ w38", 100)),
        ("widths=100x51&dtype=float16&scale=3", "float16's largest number, 65,504", ("l16", "w9", "l16 @ w9", 100)),
        ("widths=100x51&init=standard_normal", "float32's largest number, 3.40e38", ("l88", "w45", "l88 @ w45", 100)),
        (
            "widths=100x51&init=standard_normal&style=module",
            "float32's largest number, 3.40e38",
            ("l88", "w45", "l88 @ w45ᵀ", 100),
        ),
        ("scale=1e4&dtype=float16", "float16's largest number, 65,504", ("l2", "w2", "l2 @ w2", 50)),
    ],
)
def test_the_first_inf_is_a_sum_past_the_largest_number(
    dump_of, profile_of, module, significant, query, limit, product
):
    dump = dump_of(query)
    of = Columns(dump)
    left, right, expression, terms = product
    inf = module("lab/non-finite.js", CAUSES, dump)["inf"]
    first = profile_of(query)["first_inf_layer"]
    assert inf["layer"] == first
    layer = dump["layers"][first - 1]
    assert inf["tensor"] == layer["preactivation"]
    name = next(tensor["name"] for tensor in dump["tensors"] if tensor["id"] == layer["preactivation"])
    positive, negative, n = of(name, "posinf"), of(name, "neginf"), of(name, "n")
    word = "+Inf" if negative == 0 else "−Inf" if positive == 0 else "±Inf"
    share = f"all {n:,} values" if positive + negative == n else f"{positive + negative:,} of {n:,} values"
    factors = ", ".join(f"|{factor}| ≤ {significant(of.largest(factor))}" for factor in (left, right))
    assert inf["text"] == (
        f"layer {first}, {name}: {expression} sums {terms} products ({factors}), past {limit}: {share} are {word}."
    )


@pytest.mark.parametrize("query", [EXPLODING, "widths=100x51&dtype=float16&scale=3", "widths=100x51&scale=30"])
def test_the_first_nan_is_inf_minus_inf(dump_of, profile_of, module, query):
    dump = dump_of(query)
    of = Columns(dump)
    first = profile_of(query)["first_nan_layer"]
    nan = module("lab/non-finite.js", CAUSES, dump)["nan"]
    assert nan["layer"] == first
    names = {tensor["id"]: tensor["name"] for tensor in dump["tensors"]}
    out, inp = names[dump["layers"][first - 1]["preactivation"]], names[dump["layers"][first - 2]["activation"]]
    weight = names[dump["layers"][first - 1]["weight"]]
    held = of(inp, "posinf") + of(inp, "neginf")
    word = "±Inf" if of(inp, "neginf") else "+Inf"
    assert nan["text"] == (
        f"layer {first}, {out}: {inp} @ {weight} sums {inp}'s {held:,} {word} times numbers of either sign; "
        f"Inf − Inf is NaN: {of(out, 'nan'):,} of {of(out, 'n'):,} values."
    )


def test_a_finite_pass_has_no_cause(dump_of, module):
    for query in ("", "scale=1e4", "preset=deep-vanishing"):
        assert module("lab/non-finite.js", CAUSES, dump_of(query)) == {"inf": None, "nan": None}


@pytest.mark.parametrize("style", ["layer_function", "autograd_function", "module"])
def test_a_loss_that_overflows_and_a_gradient_after_it(dump_of, module, significant, style):
    dump = dump_of(f"{EXPLODING}&widths=100x24&style={style}")
    of = Columns(dump)
    causes = module("lab/non-finite.js", CAUSES, dump)
    inf, nan = causes["inf"], causes["nan"]
    assert (inf["layer"], inf["tensor"], inf["isBackward"]) == (None, of.ids["loss"], False)
    assert "(out − y)² passes float32's largest number, 3.40e38, from |out − y| = 1.84e19 on" in inf["text"]
    assert math.sqrt(3.4028234663852886e38) == pytest.approx(1.84e19, rel=5e-3)
    assert f"goes up to {significant(of.largest('loss.sub'))}" in inf["text"]
    # Everything forward and every gradient that the matmul reads is finite: the sum itself overflowed both ways.
    assert (nan["layer"], nan["tensor"], nan["isBackward"]) == (23, of.ids["w23.g"], True)
    assert "sums 200 products" in nan["text"]
    assert "partial sums pass ±3.40e38, and Inf − Inf is NaN" in nan["text"]
    assert nan["text"].endswith(f": {of('w23.g', 'nan'):,} of 10,000 values.")


def test_a_gradient_that_holds_inf_beside_zeros(dump_of, module):
    nan = module("lab/non-finite.js", CAUSES, dump_of("scale=1e4&dtype=float16"))["nan"]
    assert nan["text"] == (
        "layer 2, w2.g: l2ᵀ @ out.g sums out.g's 200 ±Inf times numbers some of which are 0; "
        "Inf − Inf and 0 · Inf are NaN: all 50 values."
    )


def test_an_activation_with_a_gate_makes_nan_of_minus_inf(dump_of, module):
    dump = dump_of("widths=100x51&activation=silu&init=standard_normal&style=module")
    of = Columns(dump)
    nan = module("lab/non-finite.js", CAUSES, dump)["nan"]
    held = of("l89", "neginf")
    assert held > 0
    assert of("l90", "nan") == held
    assert nan["text"] == (
        f"layer 45, l90: l89's {held} −Inf: silu of −Inf is −Inf · 0, which is NaN: {held} of 20,000 values."
    )


def test_a_loss_of_infinite_logits(dump_of, module):
    nan = module("lab/non-finite.js", CAUSES, dump_of("widths=100,50,10&loss=cross_entropy&scale=1e4&dtype=float16"))[
        "nan"
    ]
    assert nan["text"].startswith("loss: log_softmax(out, dim=−1) subtracts the largest of a row from out's ")
    assert nan["text"].endswith("Inf − Inf is NaN: all 2,000 values.")


def picture(ops, tensors):
    """A dump of float32; ops: (name, phase, inputs, output, attributes), tensors: name → (role, of, figures)."""
    columns = ["n", "nan", "posinf", "neginf"]
    floats = ["mean", "std", "min", "max", "norm", "zero_fraction", "dead_fraction", "saturation"]
    producer = {op[3]: f"n{place}" for place, op in enumerate(ops)}
    rows = [figures for _, _, figures in tensors.values()]
    return {
        "ops": [
            {"id": f"n{place}", "name": name, "phase": phase, "inputs": inputs, "outputs": [output], "twin": None}
            | {"attributes": attributes}
            for place, (name, phase, inputs, output, attributes) in enumerate(ops)
        ],
        "tensors": [
            {"id": name, "name": name, "role": role, "gradient_of": of, "dtype": "float32", "shape": [4, 5]}
            | {"producer": producer.get(name)}
            for name, (role, of, _) in tensors.items()
        ],
        "layers": [],
        "statistics": {
            "tensor": list(tensors),
            **{name: [row.get(name) for row in rows] for name in floats},
            **{name: [row.get(name, 20 if name == "n" else 0) for row in rows] for name in columns},
            "histogram": {"bins": 1, "low": [], "high": [], "counts": [[0] for _ in rows]},
        },
        "loss": 1.0,
        "timing": {},
        "error": None,
        "spec": {},
    }


@pytest.mark.parametrize(
    ("ops", "tensors", "kind", "text"),
    [
        (
            [
                ("clamp_min", "forward", ["h"], "a", {"min": 0.0}),
                ("gt", "backward", ["h"], "mask", {"other": 0}),
                ("to", "backward", ["mask"], "factor", {}),
                ("mul", "backward", ["factor", "a.g"], "h.g", {}),
            ],
            {
                "h": ("preactivation", None, {"min": -1.0, "max": 1.0}),
                "a": ("activation", None, {"min": 0.0, "max": 1.0}),
                "mask": ("intermediate", None, {"min": 0.0, "max": 1.0}),
                "a.g": ("gradient", "a", {"min": -1.0, "max": 1.0, "posinf": 3}),
                "factor": ("intermediate", None, {"min": 0.0, "max": 1.0, "zero_fraction": 0.5}),
                "h.g": ("gradient", "h", {"min": -1.0, "max": 1.0, "nan": 2, "posinf": 1}),
            },
            "nan",
            "h.g: (h > 0) · a.g multiplies a.g's 3 +Inf by (h > 0), which is 0 in places; 0 · Inf is NaN: "
            "2 of 20 values.",
        ),
        (
            [("exp", "forward", ["h"], "a", {})],
            {
                "h": ("preactivation", None, {"min": -1.0, "max": 90.0}),
                "a": ("activation", None, {"min": 0.0, "max": 1e38, "posinf": 1}),
            },
            "inf",
            "a: exp(h) passes float32's largest number, 3.40e38, from |h| = 88.7 on, and that goes up to 90.0: "
            "1 of 20 values is +Inf.",
        ),
        (
            [("sum", "backward", ["a.g"], "b.g", {"dim": 0})],
            {
                "b": ("parameter", None, {"min": 0.0, "max": 0.0}),
                "a.g": ("gradient", "a", {"min": -3e38, "max": 3e38}),
                "b.g": ("gradient", "b", {"min": 0.0, "max": 1.0, "neginf": 2}),
            },
            "inf",
            "b.g: sum(a.g, dim=0) sums 1 values (|a.g| ≤ 3.00e38), past float32's largest number, 3.40e38: "
            "2 of 20 values are −Inf.",
        ),
        (
            [("matmul", "forward", ["x", "w"], "h", {})],
            {
                "x": ("input", None, {"min": -1.0, "max": 1.0}),
                "w": ("parameter", None, {"min": -1.0, "max": 1.0, "posinf": 1}),
                "h": ("preactivation", None, {"min": 0.0, "max": 1.0, "posinf": 4, "neginf": 4}),
            },
            "inf",
            "w: w came into the pass so, its numbers do not fit float32: 1 of 20 values is +Inf.",
        ),
        (
            [("add", "forward", ["a", "b"], "c", {})],
            {
                "a": ("activation", None, {"min": 0.0, "max": 1.0, "posinf": 1}),
                "b": ("activation", None, {"min": 0.0, "max": 1.0, "neginf": 1}),
                "c": ("activation", None, {"min": 0.0, "max": 1.0, "nan": 1}),
            },
            "nan",
            "c: a + b meets a's 1 +Inf and b's 1 −Inf; Inf − Inf is NaN: 1 of 20 values.",
        ),
    ],
)
def test_other_arithmetic(module, ops, tensors, kind, text):
    assert module("lab/non-finite.js", CAUSES, picture(ops, tensors))[kind]["text"] == text


def test_nothing_is_told_while_a_figure_waits_for_a_guess(dump_of, module):
    script = """(m, dump) => import("/static/core/picture.js").then(({ pictureOfDump }) => {
        const hidden = { row: 0, tensor: "x", statistic: "std" };
        return m.firstNonFinite({ ...pictureOfDump(dump, 1, "k"), hidden });
    })"""
    assert module("lab/non-finite.js", script, dump_of(EXPLODING)) == {"inf": None, "nan": None}


# ------------------------------------------------------------------------------------------------------ figures


@pytest.mark.parametrize("query", ["", EXPLODING, "widths=100x11&activation=tanh&init=lecun_normal&scale=1.6667"])
def test_a_picture_and_its_profile_say_the_same(dump_of, profile_of, module, query):
    dump, profile = dump_of(query), profile_of(query)
    for statistic in ("std", "mean", "dead_fraction", "saturation", "ratio"):
        check_figures(module, dump, profile, statistic)


def check_figures(module, dump, profile, statistic):
    rows = module("lab/profile-series.js", FIGURES, {"dump": dump, "profile": profile, "statistic": statistic})
    layers = profile["layers"]
    assert {row[0] for row in rows} - {0} == set(range(1, len(layers) + 1))
    for layer, series, side, measured, run in rows:
        if run is None:
            assert layer == 0 or series == "preactivation" or statistic in ("dead_fraction", "saturation")
            continue
        assert measured == run, (layer, series, side)
        if statistic == "ratio":
            assert measured["value"] == layers[layer - 1]["gradient_to_weight_ratio"]
        elif statistic in ("dead_fraction", "saturation") and side == "forward":
            assert measured["value"] == layers[layer - 1][statistic]
    if statistic in ("std", "mean"):
        assert sum(row[3] is not None and row[4] is not None for row in rows) >= 2 * len(layers)


def test_what_theory_says_of_a_point(module, profile_of):
    profile = profile_of("widths=100x11&activation=tanh&init=lecun_normal&scale=1.6667")
    script = """(m, [layer, statistic, series, side]) => m.expectedOf(layer, statistic, { series }, side)"""
    layer = profile["layers"][4]
    expected = layer["expected"]
    for statistic, series, side, quantity in [
        ("std", "activation", "forward", "activation_std"),
        ("std", "preactivation", "forward", "preactivation_std"),
        ("std", "activation", "backward", "gradient_std"),
        ("saturation", "activation", "forward", "saturation"),
    ]:
        assert module("lab/profile-series.js", script, [layer, statistic, series, side]) == expected[quantity]
    for statistic, series, side in [
        ("std", "preactivation", "backward"),
        ("mean", "preactivation", "forward"),
        ("dead_fraction", "activation", "forward"),
        ("ratio", "activation", "forward"),
    ]:
        assert module("lab/profile-series.js", script, [layer, statistic, series, side]) is None
    # Zero by symmetry, but for the last digits of an integral: an axis of decades must not reach down to them.
    mean = module("lab/profile-series.js", script, [layer, "mean", "activation", "forward"])
    assert abs(expected["activation_mean"]["value"]) < 1e-15
    assert mean == {"value": 0, "band": expected["activation_mean"]["band"]}
    assert module("lab/profile-series.js", "(m) => m.magnitudes({ band: [-0.01, 0.02] })") == [0, 0.02]
    assert module("lab/profile-series.js", "(m) => m.magnitudes({ band: [-3, -1] })") == [1, 3]


def test_the_axis_has_a_place_for_everything(module):
    script = """(m, [inner, outer, decades]) => {
        const axis = new m.ProfileAxis(inner, outer, decades);
        const texts = axis.ticks.map(({ text }) => text);
        return { lanes: [axis.zero, axis.inf, axis.nan], ends: [axis.low, axis.high], texts,
                 at: [0, 0.01, 0.1, 1, -1, 100, 1e30].map((value) => axis.y(value)) };
    }"""
    up = module("lab/profile-axis.js", script, [100, 4, [-2, 0]])
    zero, inf, nan = up["lanes"]
    low, high = up["ends"]
    assert 100 > zero > low > high > inf > nan > 4
    assert up["at"][0] == pytest.approx(zero)
    assert up["at"][1:4] == pytest.approx([low, (low + high) / 2, high])
    assert up["at"][4:] == pytest.approx([high, high, high])
    assert up["texts"][-3:] == ["0", "Inf", "NaN"]
    down = module("lab/profile-axis.js", script, [120, 216, [-2, 0]])
    assert [y - 120 for y in down["at"]] == pytest.approx([100 - y for y in up["at"]])
    share = module("lab/profile-axis.js", script, [300, 4, None])
    assert share["texts"] == ["0 %", "25 %", "50 %", "75 %", "100 %", "Inf", "NaN"]
    assert [share["at"][0], share["at"][3]] == pytest.approx(share["ends"])


# ------------------------------------------------------------------------------------------------------ the page

# What theory says, by hand: the profile's, given to the element as the live path would.
WITH_THEORY = """async (query) => {
    const profile = await (await fetch(`/api/v1/profile.json?${query}`)).json();
    document.querySelector("layer-profile").theory = { ...profile, seq: 1 };
}"""

PATHS = """(selector) =>
    [...document.querySelectorAll(`layer-profile ${selector}`)].map((path) => path.getAttribute("d"))"""


def choose(page, statistic):
    page.locator(f'layer-profile button[data-statistic="{statistic}"]').click()


def hover_layer(page, layer):
    """Move to the activation of a layer by keyboard: from the last one back."""
    chart = page.locator("layer-profile svg")
    chart.focus()
    chart.press("Home")
    for _ in range(layer):
        chart.press("ArrowRight")


def test_the_statistic_is_chosen_and_stays_in_the_address(explorer):
    explorer.open(f"/?{DEEP}").at_rest()
    page = explorer.page
    for statistic, title in [
        ("mean", "Mean per layer"),
        ("dead_fraction", "Dead units"),
        ("saturation", "Saturation"),
        ("ratio", "Gradient : weight"),
        ("std", "Std per layer"),
    ]:
        choose(page, statistic)
        expect(page.locator("layer-profile h2")).to_have_text(title)
        expect(page.locator(f'layer-profile [data-statistic="{statistic}"]')).to_have_attribute("aria-pressed", "true")
        expect(page.locator("layer-profile [aria-pressed=true]")).to_have_count(1)
        in_address = page.evaluate("new URLSearchParams(location.hash.slice(1)).get('statistic')")
        assert in_address == (None if statistic == "std" else statistic)
    assert page.locator("layer-profile .range.backward").count() > 0


def test_dead_units_stand_on_a_scale_of_shares(explorer, profile_of):
    explorer.open(f"/?{DEEP}#statistic=dead_fraction").at_rest()
    page = explorer.page
    assert page.locator("layer-profile .tick").all_text_contents()[:5] == ["0 %", "25 %", "50 %", "75 %", "100 %"]
    (dots,) = page.evaluate(PATHS, ".dots.forward.activation")
    heights = [float(y) for y in re.findall(r"M[\d.]+ ([\d.]+)a", dots)]
    shares = [layer["dead_fraction"] for layer in profile_of(DEEP)["layers"]]
    ticks = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("layer-profile .tick")]
            .map((tick) => [tick.textContent, Number(tick.getAttribute("y")) - 3.5]))"""
    )
    expected = [ticks["0 %"] + share * (ticks["100 %"] - ticks["0 %"]) for share in shares]
    assert heights == pytest.approx(expected, abs=0.1)
    # The gradients are not of this kind: the whole height is the activations'.
    assert page.evaluate(PATHS, ".dots.backward.activation") == [""]
    assert ticks["0 %"] - ticks["100 %"] > 120


@pytest.mark.parametrize(
    ("activation", "statistic", "words"),
    [
        ("tanh", "dead_fraction", "tanh has no dead units: it answers to inputs of either sign."),
        ("relu", "saturation", "relu does not saturate: it grows without bound"),
        ("linear", "saturation", "linear does not saturate"),
    ],
)
def test_what_does_not_apply_says_so(explorer, activation, statistic, words):
    explorer.open(f"/?activation={activation}#statistic={statistic}").at_rest()
    expect(explorer.page.locator("layer-profile .empty")).to_contain_text(words)
    assert words in explorer.page.locator("layer-profile svg").get_attribute("aria-label")


def test_the_ratio_has_its_line_of_reference(explorer, profile_of, significant):
    explorer.open("/#statistic=ratio").at_rest()
    page = explorer.page
    expect(page.locator("layer-profile .reference text")).to_have_text(re.compile("10⁻³ .Karpathy., for lr = 1"))
    ratio = profile_of("")["layers"][0]["gradient_to_weight_ratio"]
    chart = page.locator("layer-profile svg")
    chart.focus()
    chart.press("ArrowRight")
    expect(page.locator("layer-profile .readout")).to_have_text(f"layer 1: w1 ∇:W {significant(ratio)}")
    chart.press("Enter")
    page.wait_for_function("() => location.hash.includes('select=w1.g')")


def test_theory_is_drawn_and_told(explorer, profile_of, significant):
    explorer.open(f"/?{DEEP}").at_rest()
    page = explorer.page
    page.evaluate(WITH_THEORY, DEEP)
    layers = profile_of(DEEP)["layers"]
    (line,) = page.evaluate(PATHS, ".theory.forward.activation")
    (band,) = page.evaluate(PATHS, ".range.forward.activation")
    (gradient,) = page.evaluate(PATHS, ".theory.backward.activation")
    assert len(re.findall("[ML]", line)) == len(re.findall("[ML]", gradient)) == 50
    assert len(re.findall("[ML]", band)) == 100
    (rings,) = page.evaluate(PATHS, ".outside.forward.activation")
    inside = [
        low <= layer["activation"]["std"] <= high
        for layer in layers
        for low, high in [layer["expected"]["activation_std"]["band"]]
    ]
    assert rings.count("M") == inside.count(False) > 0
    for part in ("theory", "19 of 20 draws", "outside"):
        expect(page.locator("layer-profile .key span", has_text=part)).to_be_visible()

    hover_layer(page, 7)
    expected = layers[6]["expected"]
    std, gradient_std = expected["activation_std"], expected["gradient_std"]
    said = " · ".join(
        f"{name} σ {significant(layers[6][part]['std'])}, expected {significant(of['value'])} "
        f"({significant(of['band'][0])}–{significant(of['band'][1])})"
        for name, part, of in [("layer 7: l14", "activation", std), ("gradient", "gradient", gradient_std)]
    )
    expect(page.locator("layer-profile .readout")).to_have_text(said)
    label = page.locator("layer-profile svg").get_attribute("aria-label")
    assert f"expected {significant(layers[-1]['expected']['activation_std']['value'])} (" in label

    # What theory says nothing of breaks the line.
    page.evaluate(
        """async (query) => {
            const profile = await (await fetch(`/api/v1/profile.json?${query}`)).json();
            profile.layers[20].expected = {};
            document.querySelector("layer-profile").theory = { ...profile, seq: 1 };
        }""",
        DEEP,
    )
    (line,) = page.evaluate(PATHS, ".theory.forward.activation")
    assert (line.count("M"), line.count("L")) == (2, 47)


def test_where_inf_and_nan_begin_is_marked_and_told(explorer, module, dump_of):
    explorer.open(f"/?{EXPLODING}").at_rest()
    page = explorer.page
    causes = module("lab/non-finite.js", CAUSES, dump_of(EXPLODING))
    lines = page.locator("layer-profile .cause")
    texts = [f"First {kind} in {causes[kind.lower()]['text']}" for kind in ("Inf", "NaN")]
    expect(lines).to_have_text(texts)
    for kind, layer in (("Inf", 38), ("NaN", 39)):
        mark = page.locator(f'layer-profile .cause-mark[data-kind="{kind}"]')
        expect(mark.locator("text")).to_have_text(f"first {kind}")
        expect(mark).to_have_attribute("visibility", "visible")
        rule = mark.locator("line").get_attribute("x1")
        box = explorer.boxes()[f"l{layer}"]
        left = page.locator("layer-profile svg").bounding_box()["x"]
        assert float(rule) + left == pytest.approx(box["x"] + box["width"] / 2, abs=1)
    hover_layer(page, 38)
    expect(lines.first).to_have_class(re.compile("current"))
    expect(lines.last).not_to_have_class(re.compile("current"))
    assert all(text in page.locator("layer-profile svg").get_attribute("aria-label") for text in texts)
    # A pass that is finite again has none.
    page.get_by_role("button", name="Chapter").click()
    expect(lines).to_have_count(0)
    expect(page.locator("layer-profile .causes")).to_be_hidden()


def test_the_lines_of_causes_wait_until_the_slider_rests(explorer, dump_of):
    """They take room from the chart: while the slider moves nothing may jump."""
    explorer.open(f"/?{DEEP}").at_rest()
    dumps = [dump_of(f"{EXPLODING}&scale={scale}") for scale in (0.1, 1, 0.9)]
    seen = explorer.page.evaluate(
        """async (dumps) => {
            const { pictureOfDump } = await import("/static/core/picture.js");
            const element = document.querySelector("layer-profile");
            const causes = element.querySelector(".causes");
            const height = () => element.querySelector(".frame").clientHeight;
            const rested = () => new Promise((resolve) => setTimeout(resolve, 800));
            const marked = () => element.querySelectorAll(".cause-mark[visibility=visible]").length;
            const lines = () => [causes.hidden, causes.childElementCount, causes.className];
            const state = () => [...lines(), marked(), height() === first];
            const [finite, layer38, later] = dumps.map((dump) => pictureOfDump(dump, 1, "one graph"));
            element.picture = finite;
            const first = height();
            const states = [state()];
            element.picture = layer38;
            states.push(state());
            await rested();
            states.push(state());
            const before = causes.textContent;
            element.picture = later;
            states.push([...state(), causes.textContent === before]);
            await rested();
            states.push([...state(), causes.textContent === before]);
            return states;
        }""",
        dumps,
    )
    assert seen == [
        [True, 0, "causes", 0, True],
        [True, 0, "causes stale", 2, True],
        [False, 2, "causes", 2, False],
        [False, 2, "causes stale", 2, False, True],
        [False, 2, "causes", 2, False, False],
    ]


def test_a_pinned_run_stands_beside(explorer, profile_of, significant):
    explorer.open(f"/?{DEEP}#a=?{DEEP.replace('&', '%26')}%26seed=7").at_rest()
    page = explorer.page
    there = profile_of(f"{DEEP}&seed=7")["layers"]
    expect(page.locator("layer-profile .key span", has=page.locator("i.box"))).to_be_visible()
    for side in ("forward", "backward"):
        (squares,) = page.evaluate(PATHS, f".run-dots.{side}.activation")
        assert squares.count("z") == (51 if side == "forward" else 50)
    expect(page.locator("layer-profile .key span", has_text="A").last).to_have_text("A")
    hover_layer(page, 3)
    readout = page.locator("layer-profile .readout")
    expect(readout).to_contain_text(f", A {significant(there[2]['activation']['std'])} · gradient")
    expect(readout).to_contain_text(f", A {significant(there[2]['gradient']['std'])}")


def test_a_pinned_run_of_another_depth_says_what_is_left_out(explorer):
    explorer.open(f"/#a=?{DEEP.replace('&', '%26')}").at_rest()
    page = explorer.page
    expect(page.locator("layer-profile .key span", has_text="A, its first 2 of 50 layers")).to_be_visible()
    (squares,) = page.evaluate(PATHS, ".run-dots.forward.activation")
    assert squares.count("z") == 3
    # A's gradients are ten decades smaller, and the axis holds them.
    (dots,) = page.evaluate(PATHS, ".run-dots.backward.activation")
    assert dots.count("z") == 2


def test_a_figure_that_waits_for_a_guess_is_a_question_mark(explorer):
    explorer.open("/#predict=l2.std").at_rest()
    page = explorer.page
    expect(page.locator("layer-profile .question[visibility=visible]")).to_have_count(1)
    (dots,) = page.evaluate(PATHS, ".dots.forward.activation")
    assert dots.count("M") == 2  # x and out
    hover_layer(page, 1)
    expect(page.locator("layer-profile .readout")).to_contain_text("layer 1: l2 σ ? · gradient σ ")
    choose(page, "dead_fraction")
    hover_layer(page, 0)
    expect(page.locator("layer-profile .readout")).to_have_text("layer 1: l2 dead ?")


def test_the_layers_are_walked_by_keyboard(explorer):
    explorer.open().at_rest()
    page = explorer.page
    chart, readout = page.locator("layer-profile svg"), page.locator("layer-profile .readout")
    chart.focus()
    for key, begins in [
        ("ArrowRight", "input: x σ"),
        ("ArrowRight", "layer 1: l2 σ"),
        ("ArrowUp", "layer 1: l1 σ"),
        ("ArrowRight", "layer 2: out σ"),
        ("ArrowRight", "layer 2: out σ"),
        ("Home", "input: x σ"),
        ("End", "layer 2: out σ"),
        ("ArrowLeft", "layer 1: l2 σ"),
    ]:
        chart.press(key)
        expect(readout).to_have_text(re.compile(f"^{begins} "))
    expect(readout).to_have_attribute("aria-live", "polite")
    chart.press("Enter")
    page.wait_for_function("() => location.hash === '#select=l2'")
    chart.press("Escape")
    expect(readout).to_contain_text("measured" if page.locator("layer-profile .hollow").count() == 0 else "activation")
    # The first Escape left the chart, not the selection.
    assert page.evaluate("location.hash") == "#select=l2"


def test_new_numbers_make_no_new_nodes(explorer, dump_of):
    """Redrawn on every movement of the slider: shapes change, nodes and the layout do not."""
    explorer.open(f"/?{DEEP}").at_rest()
    explorer.page.evaluate(WITH_THEORY, DEEP)
    dumps = [dump_of(f"{DEEP}&scale={scale}") for scale in (1, 0.999, 1.001)]
    counts = explorer.page.evaluate(
        """async (dumps) => {
            const { pictureOfDump } = await import("/static/core/picture.js");
            const element = document.querySelector("layer-profile");
            const pictures = dumps.map((dump) => pictureOfDump(dump, 1, "one graph"));
            element.picture = pictures[0];
            const changes = { childList: 0, attributes: 0 };
            const observer = new MutationObserver((records) => records.forEach(({ type }) => (changes[type] += 1)));
            observer.observe(element, { childList: true, attributes: true, subtree: true });
            let reads = 0;
            for (const name of ["clientWidth", "clientHeight"]) {
                const { get } = Object.getOwnPropertyDescriptor(Element.prototype, name);
                const counted = { get() { reads += 1; return get.call(this); } };
                Object.defineProperty(element.querySelector(".frame"), name, counted);
            }
            for (let frame = 0; frame < 20; frame += 1) element.picture = pictures[frame % 3];
            await Promise.resolve();
            observer.disconnect();
            return { ...changes, reads };
        }""",
        dumps,
    )
    assert counts["childList"] == 0
    assert counts["reads"] == 0
    assert 0 < counts["attributes"] <= 20 * 20


@pytest.mark.parametrize("context_options", [{"viewport": {"width": 390, "height": 844}}])
def test_a_narrow_screen_has_a_list_of_statistics(explorer):
    page = explorer.page
    # The graph is in a tab that is not shown: it is not waited for.
    page.goto(explorer.url + "/#tab=profile")
    page.wait_for_selector("layer-profile .dots.forward")
    expect(page.locator("layer-profile .segmented")).to_be_hidden()
    page.locator("layer-profile select").select_option("dead_fraction")
    expect(page.locator("layer-profile h2")).to_have_text("Dead units")
    page.wait_for_function("() => location.hash.includes('statistic=dead_fraction')")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
