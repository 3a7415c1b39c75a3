"""The profile of the layers: its figures against the dump, and the causes of ±Inf and NaN."""

import math

import pytest
from figures import significant

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
def test_the_first_inf_is_a_sum_past_the_largest_number(dump_of, profile_of, module, query, limit, product):
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
def test_a_loss_that_overflows_and_a_gradient_after_it(dump_of, module, style):
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
    up = module("lab/profile-axes.js", script, [100, 4, [-2, 0]])
    zero, inf, nan = up["lanes"]
    low, high = up["ends"]
    assert 100 > zero > low > high > inf > nan > 4
    assert up["at"][0] == pytest.approx(zero)
    assert up["at"][1:4] == pytest.approx([low, (low + high) / 2, high])
    assert up["at"][4:] == pytest.approx([high, high, high])
    assert up["texts"][-3:] == ["0", "Inf", "NaN"]
    down = module("lab/profile-axes.js", script, [120, 216, [-2, 0]])
    assert [y - 120 for y in down["at"]] == pytest.approx([100 - y for y in up["at"]])
    share = module("lab/profile-axes.js", script, [300, 4, None])
    assert share["texts"] == ["0 %", "25 %", "50 %", "75 %", "100 %", "Inf", "NaN"]
    assert [share["at"][0], share["at"][3]] == pytest.approx(share["ends"])
