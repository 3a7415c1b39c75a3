"""Whether the layers are healthy, what theory expects of them, and the remedy."""

import pytest

# A picture and a theory of two layers, in the shape of the page's own: names of tensors are their ids.
WORLD = """
    const columns = ["mean", "std", "min", "max", "norm", "zero_fraction", "dead_fraction", "saturation"];
    function world({ tensors, layers, theory }) {
        const ids = Object.keys(tensors);
        const column = (name) => Float64Array.from(ids, (id) => tensors[id][name] ?? NaN);
        const picture = {
            seq: 1, key: "k", bins: 64, hidden: null, rows: new Map(ids.map((id, row) => [id, row])),
            topology: { layers, tensors: ids.map((id) => ({ id, name: id })) },
            floats: Object.fromEntries(columns.map((name) => [name, column(name)])),
            integers: { n: Uint32Array.from(ids, (id) => tensors[id].n ?? 4) },
        };
        return [picture, { seq: 1, advice: null, layers: theory }];
    }
"""

LAYERS = [
    {"index": 1, "preactivation": "l1", "activation": "l2", "gradient": "l2.g", "weight": "w1"},
    {"index": 2, "preactivation": "out", "activation": "out", "gradient": "out.g", "weight": "w2"},
]


def run(module, script, tensors, theory):
    body = f"(m, given) => {{ {WORLD} const [picture, theory] = world(given); return ({script})(m, picture, theory); }}"
    return module("lab/diagnosis.js", body, {"tensors": tensors, "layers": LAYERS, "theory": theory})


def expected(**figures):
    return {name: {"value": value, "band": [low, high]} for name, (value, low, high) in figures.items()}


def test_figures_are_counted_and_troubles_named_with_the_one_that_shows_it_most(module):
    tensors = {
        "x": {"norm": 2, "n": 4},
        "l1": {"std": 1},
        "l2": {"std": 0.01, "mean": 0.2, "norm": 0.004, "dead_fraction": 0.4, "n": 16},
        "l2.g": {"std": 3, "norm": 6},
        "out": {"std": 2e-4, "mean": 0, "norm": 2e-4, "n": 4},
        "out.g": {"std": 1, "norm": 2},
    }
    theory = [
        {
            "index": 1,
            "health": "vanishing",
            "weight_std": 0.1,
            "expected": expected(
                preactivation_std=(1, 0.9, 1.1), activation_std=(0.8, 0.7, 0.9), dead_fraction=(0.3, 0.2, 0.4)
            ),
        },
        {"index": 2, "health": "vanishing", "weight_std": 0.1, "expected": expected(preactivation_std=(1, 0.9, 1.1))},
    ]
    diagnosis = run(module, "(m, picture, theory) => m.diagnose(picture, theory)", tensors, theory)
    # In: std of l1, and the dead units, at the edge. Out: std of l2 and of out.
    assert (diagnosis["layers"], diagnosis["figures"], diagnosis["within"]) == (2, 4, 2)
    (trouble,) = diagnosis["troubles"]
    assert trouble["health"] == "vanishing"
    assert trouble["layers"] == [1, 2]
    assert trouble["tensor"] == "l2"
    # RMS 1e-3 of l2, 1e-4 of out, both against 1 of x; gradients do not vanish.
    assert trouble["ratio"] == pytest.approx(1e-4)
    assert trouble["figure"]["tensor"] == "out"
    assert trouble["figure"]["quantity"] == "activation_std"
    assert trouble["figure"]["measured"] == 2e-4
    assert trouble["figure"]["expected"] is None


def test_the_gradient_is_named_where_it_is_what_explodes(module):
    tensors = {
        "x": {"norm": 2},
        "l2": {"std": 1, "norm": 2},
        "l2.g": {"std": 99, "norm": 200},
        "out": {"std": 1, "norm": 2},
        "out.g": {"std": 1, "norm": 2},
    }
    theory = [
        {"index": 1, "health": "exploding", "weight_std": 1, "expected": expected(gradient_std=(90, 80, 100))},
        {"index": 2, "health": None, "weight_std": 1, "expected": {}},
    ]
    (trouble,) = run(module, "(m, picture, theory) => m.diagnose(picture, theory).troubles", tensors, theory)
    assert (trouble["layers"], trouble["ratio"], trouble["tensor"]) == ([1], 100, "l2.g")
    assert trouble["figure"]["expected"]["band"] == [80, 100]


def test_troubles_come_worst_first_and_without_numbers_where_there_are_none(module):
    tensors = {"x": {"norm": 2}, "l2": {"dead_fraction": 1}, "out": {}}
    theory = [
        {"index": 1, "health": "dead", "weight_std": 1, "expected": {}},
        {"index": 2, "health": "non-finite", "weight_std": 1, "expected": {}},
    ]
    troubles = run(module, "(m, picture, theory) => m.diagnose(picture, theory).troubles", tensors, theory)
    assert [trouble["health"] for trouble in troubles] == ["non-finite", "dead"]
    assert troubles[0]["figure"] is None
    assert troubles[1]["figure"]["measured"] == 1


def test_a_tensor_that_is_two_things_has_each_figure_once(module):
    tensors = {"l1": {"std": 1}, "l2": {"std": 2, "mean": 1}, "out": {"std": 3, "mean": 0}}
    both = expected(preactivation_std=(1, 0, 2), activation_std=(2, 0, 3), activation_mean=(0, -1, 1))
    theory = [{"index": index, "health": None, "weight_std": 1, "expected": both} for index in (1, 2)]
    script = """(m, picture, theory) => ["l1", "l2", "out", "x"]
        .map((tensor) => m.figuresOf(picture, theory, tensor).map(({ quantity }) => quantity))"""
    assert run(module, script, tensors, theory) == [
        ["preactivation_std"],
        ["activation_mean", "activation_std"],
        ["activation_mean", "activation_std"],
        [],
    ]


def test_how_layers_and_bands_are_written(module):
    texts = module("lab/diagnosis.js", "(m) => [[3], [1, 2, 3], [2, 4, 5, 9], [1, 3, 5, 7]].map(m.layersText)")
    assert texts == ["layer 3", "layers 1–3", "layers 2, 4–5, 9", "4 layers, 1 to 7"]
    bands = [
        ("activation_std", [0.966, 1.034], "0.966–1.03"),
        ("activation_mean", [-0.02, 0.02], "−0.0200 to 0.0200"),
        ("activation_std", [0, 0], "exactly"),
        ("dead_fraction", [0.1, 0.391], "10.0–39.1 %"),
        ("dead_fraction", [0.9999999, 1.0000001], "exactly"),
    ]
    for quantity, band, text in bands:
        assert module("lab/diagnosis.js", "(m, [name, band]) => m.bandText(name, band)", [quantity, band]) == text
    # The rounding error of quadrature is written as zero.
    script = """(m, value) => m.expectedText("activation_mean", { value, band: [-0.01, 0.01] })"""
    assert [module("lab/diagnosis.js", script, value) for value in (-1.3e-17, 0.001)] == ["0", "0.00100"]


def test_a_change_is_in_force_to_three_digits(module):
    script = "(m, [spec, change]) => m.hasChange(spec, change)"
    spec = {"init": "lecun_normal", "scale": 1.414}
    for change, is_there in [
        ({"scale": 1.4142}, True),
        ({"scale": 1.42}, False),
        ({"init": "lecun_normal", "scale": 1.414}, True),
        ({"init": "kaiming_normal", "scale": 1.414}, False),
    ]:
        assert module("lab/diagnosis.js", script, [spec, change]) is is_there
