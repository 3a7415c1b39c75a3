"""The page's modules without a page: layout, formats, addresses, frames, formulas, in the browser that runs them."""

import base64
import itertools
import math
import re
import struct
from urllib.request import urlopen

import pytest

pytestmark = pytest.mark.browser

LAYOUT = """(module, {dump, options}) => import("/static/core/scene.js").then(({ buildScene }) => {
    const scene = buildScene(dump);
    return { scene, layout: module.layoutScene(dump, scene, options) };
})"""


def lay_out(module, dump, orientation="horizontal", length=860, breadth=480):
    options = {"orientation": orientation, "length": length, "breadth": breadth}
    answer = module("layout.js", LAYOUT, {"dump": dump, "options": options})
    return answer["scene"], answer["layout"]


def check_layout(scene, layout, orientation):
    """No two boxes overlap, all lie inside, depth only grows, gradients stand under their tensors."""
    boxes = {box["id"]: box for box in layout["boxes"]}
    assert len(boxes) == len(scene["groups"]) + len(scene["tensors"])
    for a, b in itertools.combinations(layout["boxes"], 2):
        apart = (
            a["x"] + a["w"] <= b["x"] + 1e-6
            or b["x"] + b["w"] <= a["x"] + 1e-6
            or a["y"] + a["h"] <= b["y"] + 1e-6
            or b["y"] + b["h"] <= a["y"] + 1e-6
        )
        assert apart, (a, b)
    for box in layout["boxes"]:
        assert box["x"] >= 0
        assert box["y"] >= 0
        assert box["x"] + box["w"] <= layout["width"] + 1e-6
        assert box["y"] + box["h"] <= layout["height"] + 1e-6

    depth, size = ("x", "w") if orientation == "horizontal" else ("y", "h")
    across, thick = ("y", "h") if orientation == "horizontal" else ("x", "w")
    centre = {name: box[depth] + box[size] / 2 for name, box in boxes.items()}
    level = {name: box[across] + box[thick] / 2 for name, box in boxes.items()}
    for edge in scene["edges"]:
        if edge["kind"] == "data":
            ahead = centre[edge["target"]] - centre[edge["source"]]
            assert (ahead > 0) == (edge["half"] == "forward"), edge
    axis = next((level[t["id"]] for t in scene["tensors"] if t["id"] == "loss"), None)
    paired = set()
    for box in [*scene["groups"], *scene["tensors"]]:
        if box["half"] == "backward" and box["twin"] is not None and box["twin"] not in paired:
            paired.add(box["twin"])
            assert centre[box["id"]] == pytest.approx(centre[box["twin"]], abs=0.01), box
            if axis is not None and box["twin"] != "loss":
                assert level[box["id"]] - axis == pytest.approx(axis - level[box["twin"]], abs=0.01), box
    return boxes


@pytest.mark.parametrize("orientation", ["horizontal", "vertical"])
@pytest.mark.parametrize(
    "query",
    [
        "",
        "style=functions",
        "style=autograd_function",
        "style=module",
        "bias=false&activation=linear",
        "last_activation=true&activation=gelu",
        "style=module&loss=cross_entropy&widths=100,50,10",
        "widths=100x51",
    ],
)
def test_no_box_overlaps_and_every_gradient_is_under_its_tensor(dump_of, module, query, orientation):
    dump = dump_of(query)
    scene, layout = lay_out(module, dump, orientation)
    boxes = check_layout(scene, layout, orientation)
    if orientation == "horizontal":
        # As wide as it was asked to be, however many layers there are.
        assert layout["width"] == pytest.approx(860, abs=0.01)
    names = {tensor["id"]: tensor["name"] for tensor in dump["tensors"]}
    for layer in dump["layers"]:
        for part in ("preactivation", "activation", "weight", "gradient"):
            assert layer[part] is None or names[layer[part]] in boxes


@pytest.mark.parametrize("depth", [1, 2, 3, 7, 16, 33, 64])
def test_one_to_sixty_four_layers_fit(dump_of, module, depth):
    dump = dump_of(f"widths=4x{depth + 1}&batch=2")
    scene, layout = lay_out(module, dump)
    check_layout(scene, layout, "horizontal")
    assert layout["width"] <= 860.01


def graph(modules, ops, tensors, saved=()):
    """A dump without numbers; ops: (id, phase, module, inputs, outputs, twin), tensors: (id, role, gradient_of)."""
    producer = {output: op[0] for op in ops for output in op[4]}
    readers = {tensor[0]: [op[0] for op in ops if tensor[0] in op[3]] for tensor in tensors}
    return {
        "modules": [dict(zip(("id", "path", "type", "parent"), module, strict=True)) for module in modules],
        "ops": [
            dict(zip(("id", "phase", "module", "inputs", "outputs", "twin"), op, strict=True))
            | {"name": "f", "attributes": {}, "flops": 0, "bytes": 0, "source": None}
            for op in ops
        ],
        "tensors": [
            {"id": name, "name": name, "role": role, "shape": [8, 8], "dtype": "float32", "module": "m0", "note": None}
            | {"producer": producer.get(name), "consumers": readers[name], "gradient_of": of}
            for name, role, of in tensors
        ],
        "saved": [{"tensor": tensor, "op": op} for tensor, op in saved],
        "layers": [],
        "statistics": {"tensor": []},
    }


@pytest.mark.parametrize("orientation", ["horizontal", "vertical"])
def test_a_residual_block_with_summed_gradients(module, orientation):
    dump = graph(
        [
            ("m0", "", "Net", None),
            ("m1", "a", "Linear", "m0"),
            ("m2", "b", "Linear", "m0"),
            ("m3", "loss", "Mse", "m0"),
        ],
        [
            ("n0", "forward", "m1", ["x", "wa"], ["h"], None),
            ("n1", "forward", "m2", ["h", "wb"], ["f"], None),
            ("n2", "forward", "m0", ["f", "h"], ["s"], None),
            ("n3", "forward", "m3", ["s"], ["loss"], None),
            ("n4", "backward", "m3", ["s"], ["s.g"], "n3"),
            ("n5", "backward", "m0", ["s.g"], ["f.g", "h.g1"], "n2"),
            ("n6", "backward", "m2", ["f.g", "wb"], ["h.g2", "wb.g"], "n1"),
            ("n7", "backward", "m0", ["h.g1", "h.g2"], ["h.g"], None),
            ("n8", "backward", "m1", ["h.g"], ["x.g", "wa.g"], "n0"),
        ],
        [
            ("x", "input", None),
            *[(name, "parameter", None) for name in ("wa", "wb")],
            *[(name, "activation", None) for name in ("h", "f", "s")],
            ("loss", "loss", None),
            *[(f"{name}.g", "gradient", name) for name in ("s", "f", "wb", "x", "wa")],
            *[(name, "gradient", "h") for name in ("h.g1", "h.g2", "h.g")],
        ],
        saved=[("x", "n0"), ("wa", "n0"), ("h", "n1")],
    )
    scene, layout = lay_out(module, dump, orientation)
    boxes = {box["id"]: box for box in layout["boxes"]}
    assert {"h.g", "h.g1", "h.g2", "model/backward", "model/backward.2"} <= boxes.keys()
    for a, b in itertools.combinations(layout["boxes"], 2):
        apart = (
            a["x"] + a["w"] <= b["x"]
            or b["x"] + b["w"] <= a["x"]
            or a["y"] + a["h"] <= b["y"]
            or b["y"] + b["h"] <= a["y"]
        )
        assert apart, (a["id"], b["id"])
    depth, size = ("x", "w") if orientation == "horizontal" else ("y", "h")
    # The last gradient of h is the whole one: it has the place under h.
    assert boxes["h.g"][depth] + boxes["h.g"][size] / 2 == pytest.approx(boxes["h"][depth] + boxes["h"][size] / 2)
    crossing = {(edge["source"], edge["target"]) for edge in scene["edges"] if edge["kind"] == "saved"}
    assert crossing == {
        ("x", "a/backward"),
        ("wa", "a/backward"),
        ("h", "b/backward"),
        ("wb", "b/backward"),
        ("s", "loss/backward"),
    }


def test_a_module_called_twice_is_two_boxes(module):
    dump = graph(
        [("m0", "", "Net", None), ("m1", "a", "Linear", "m0"), ("m2", "b", "Relu", "m0")],
        [
            ("n0", "forward", "m1", ["x"], ["h"], None),
            ("n1", "forward", "m2", ["h"], ["i"], None),
            ("n2", "forward", "m1", ["i"], ["j"], None),
        ],
        [("x", "input", None), *[(name, "activation", None) for name in "hij"]],
    )
    scene, layout = lay_out(module, dump)
    assert [group["id"] for group in scene["groups"]] == ["a/forward", "b/forward", "a/forward.2"]
    check_layout(scene, layout, "horizontal")


def test_a_thousand_layers_need_no_recursion(module):
    n = 1000
    ops = [(f"n{i}", "forward", f"m{i + 1}", [f"h{i}"], [f"h{i + 1}"], None) for i in range(n)]
    modules = [("m0", "", "Net", None), *[(f"m{i + 1}", f"l{i}", "Linear", "m0") for i in range(n)]]
    tensors = [("h0", "input", None), *[(f"h{i + 1}", "activation", None) for i in range(n)]]
    _, layout = lay_out(module, graph(modules, ops, tensors))
    assert len(layout["boxes"]) == 2 * n + 1
    starts = [box["x"] for box in layout["boxes"] if box["kind"] == "tensor"]
    assert starts == sorted(starts)


def test_isotonic_regression_is_the_least_squares_solution(module):
    solved = module("layered.js", "(m) => m.isotonic([3, 1, 2, 10], [1, 1, 2, 1], [0, 0, 0])")
    # Pooled by hand: (3 + 1 + 2·2) / 4 for the first three.
    assert solved == pytest.approx([2, 2, 2, 10])
    assert module("layered.js", "(m) => m.isotonic([0, 0], [1, 1], [4])") == pytest.approx([-2, 2])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0231, "1.02"),
        (2.4612e-8, "2.46e-8"),
        (0.14142, "0.141"),
        (-0.5, "−0.500"),
        (0, "0"),
        (999.9, "1000"),
        (9876, "9880"),
        (12345, "1.23e4"),
        (0.001, "0.00100"),
        (0.0009996, "0.00100"),
        (3.4e38, "3.40e38"),
        (None, "–"),
    ],
)
def test_numbers_have_three_significant_digits(module, significant, value, text):
    assert module("format.js", "(m, value) => m.significant(value)", value) == text
    assert significant(value) == text


def test_other_formats(module):
    assert module("format.js", "(m) => [NaN, Infinity, -Infinity].map(m.significant)") == ["NaN", "∞", "−∞"]
    assert module("format.js", "(m) => [0, 0.0004, 0.5, 0.99999, 1].map(m.percent)") == [
        "0 %",
        "< 0.1 %",
        "50.0 %",
        "> 99.9 %",
        "100 %",
    ]
    assert module("format.js", "(m) => [m.shape([200, 50]), m.shape([]), m.count(12345)]") == [
        "200 × 50",
        "scalar",
        "12,345",
    ]
    assert module("format.js", "(m) => [999, 2.02e6, 1e9].map((n) => m.quantity(n, 'FLOP'))") == [
        "999 FLOP",
        "2.02 MFLOP",
        "1.00 GFLOP",
    ]
    assert module("format.js", "(m) => [0.1, 1e9, 0.0001, 316].map(m.setting)") == ["0.1", "1e9", "0.0001", "316"]


def test_the_sliders_scale_is_monotone_and_invertible(module):
    values = module(
        "scales.js",
        """(m) => {
            const scale = m.sliderScale(1e-4, 1e4);
            return Array.from({ length: 401 }, (_, step) => {
                const value = scale.value(step / 200 - 1);
                return [value, scale.value(scale.position(value))];
            });
        }""",
    )
    assert values[0][0] == 1e-4
    assert values[200][0] == 1
    assert values[400][0] == 1e4
    assert all(a[0] <= b[0] for a, b in itertools.pairwise(values))
    assert all(back == pytest.approx(value, rel=1e-9) for value, back in values)
    assert module("scales.js", "(m) => m.sliderScale(1e-4, 1e4).step(1, 30)") == pytest.approx(10**0.3, rel=5e-3)


def test_decades_hold_their_values(module):
    for values in ([0.7, 1.4], [1e-30, 1e38], [5], []):
        low, high = module("scales.js", "(m, values) => m.decadeRange(values)", values)
        assert high - low >= 2
        assert all(low <= math.log10(value) <= high for value in values)
        ticks = module("scales.js", "(m, [low, high]) => m.decadeTicks(low, high, 70, 14)", [low, high])
        assert 1 <= len(ticks) <= 6
    assert module("scales.js", "(m) => [-8, -2, 0, 3, 20].map(m.decadeLabel)") == ["10⁻⁸", "0.01", "1", "1000", "10²⁰"]
    assert module("scales.js", "(m) => m.layerTicks(50, 800, 26)") == [1, *range(5, 51, 5)]


@pytest.mark.parametrize(
    "query",
    [
        "",
        "widths=100x51&activation=linear&init=standard_normal&scale=0.1",
        "last_activation=true&bias=false&seed=7",
        "init=lecun_normal&scale=1.6667&bias_std=0.25&dtype=float64",
        "seed=9223372036854775807",
    ],
)
def test_the_page_and_the_server_write_one_address(server_url, module, query):
    with urlopen(f"{server_url}/?{query}") as answer:
        page = answer.read().decode()
    data = re.search(r'<script type="application/json" id="page-data">(.*?)</script>', page, re.DOTALL)[1]
    script = """(m, text) => {
        const page = JSON.parse(text);
        return [page.query, m.specQuery(page.keys, m.parseSpec(page.keys, page.defaults, page.query))];
    }"""
    server, browser = module("url-state.js", script, data)
    assert browser == server == query


def test_the_view_goes_into_the_fragment_and_back(module):
    initial = module("url-state.js", "(m) => m.parseView('')")
    view = initial | {
        "select": "layers.0/forward",
        "statistic": "mean",
        "show": "layers",
        "tab": "profile",
        "predict": "l2.std",
        "guess": "0.8",
        "a": "?widths=100x51&scale=0.5",
        "zoom": 2.5,
        "at": 0.25,
    }
    text, back = module(
        "url-state.js", "(m, view) => [m.viewFragment(view), m.parseView('#' + m.viewFragment(view))]", view
    )
    assert text == (
        "select=layers.0/forward&statistic=mean&show=layers&tab=profile&predict=l2.std&guess=0.8"
        "&a=?widths=100x51%26scale=0.5&zoom=2.5&at=0.25"
    )
    assert back == view
    assert module("url-state.js", "(m, view) => m.viewFragment(view)", initial) == ""
    assert module("url-state.js", "(m) => m.parseView('#statistic=bogus&zoom=-1&x=1')") == initial


def frame(rows, bins=64, *, loss=2.5, flags=0, extra_columns=0):
    floats = [[row + 0.5 * column for row in range(rows)] for column in range(8 + extra_columns)]
    floats[1][0] = math.nan
    integers = [[10 * column + row for row in range(rows)] for column in range(4)]
    counts = [place % 97 for place in range(rows * bins)]
    header = struct.pack("<4sIIIIIddII", b"CRF1", 7, 3, rows, bins, 8 + extra_columns, loss, 1.25, flags, 4)
    body = b"".join(struct.pack(f"<{rows}d", *column) for column in floats)
    body += b"".join(struct.pack(f"<{rows}I", *column) for column in integers)
    return header + body + struct.pack(f"<{rows * bins}I", *counts), floats, integers, counts


DECODE = """(m, {bytes, rows}) => {
    const buffer = Uint8Array.from(atob(bytes), (letter) => letter.charCodeAt(0)).buffer;
    const tensor = Array.from({ length: rows }, (_, row) => `t${row}`);
    const topology = { statistics: { tensor } };
    const picture = m.decodeFrame(buffer, { key: "k", topology, rows: m.rowIndex(topology) }, {});
    const all = Object.entries({ ...picture.floats, ...picture.integers });
    const columns = Object.fromEntries(all.map(([name, column]) => [name, Array.from(column, String)]));
    return { header: m.frameHeader(buffer), columns, counts: Array.from(picture.counts), loss: picture.loss,
             computeMs: picture.computeMs, failed: picture.failed, last: picture.rows.get(`t${rows - 1}`) };
}"""


@pytest.mark.parametrize("extra_columns", [0, 2])
@pytest.mark.parametrize("rows", [1, 5, 300])
def test_a_frame_is_decoded(module, rows, extra_columns):
    data, floats, integers, counts = frame(rows, extra_columns=extra_columns)
    picture = module("picture.js", DECODE, {"bytes": base64.b64encode(data).decode(), "rows": rows})
    assert picture["header"] == {"seq": 7, "topology": 3}
    assert (picture["loss"], picture["computeMs"], picture["failed"], picture["last"]) == (2.5, 1.25, False, rows - 1)
    names = ["mean", "std", "min", "max", "norm", "zero_fraction", "dead_fraction", "saturation"]
    for name, column in zip(names, floats, strict=False):
        assert [float(text) for text in picture["columns"][name]] == pytest.approx(column, nan_ok=True), name
    for name, column in zip(["n", "nan", "posinf", "neginf"], integers, strict=True):
        assert [int(text) for text in picture["columns"][name]] == column, name
    assert picture["counts"] == counts


def test_flags_of_a_frame(module):
    data, *_ = frame(2, loss=math.nan, flags=1 | 2)
    picture = module("picture.js", DECODE, {"bytes": base64.b64encode(data).decode(), "rows": 2})
    assert picture["loss"] is None
    assert picture["failed"] is True


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda data: data[:-4], "its header says"),
        (lambda data: b"XXXX" + data[4:], "not a live frame"),
        (lambda data: data[:20], "not a live frame"),
    ],
)
def test_a_broken_frame_is_refused(module, spoil, message):
    script = f"""(m, argument) => {{
        try {{ ({DECODE})(m, argument); }} catch (error) {{ return `${{error.name}}: ${{error.message}}`; }}
        return "accepted";
    }}"""
    data = base64.b64encode(spoil(frame(3)[0])).decode()
    assert message in module("picture.js", script, {"bytes": data, "rows": 3})


def test_a_dump_gives_the_same_picture_as_its_columns(dump_of, module):
    dump = dump_of("preset=deep-exploding")
    script = """(m, dump) => {
        const picture = m.pictureOfDump(dump, 3, "k");
        return { std: Array.from(picture.floats.std, String), nan: Array.from(picture.integers.nan),
                 loss: String(picture.loss), seq: picture.seq,
                 counts: Array.from(picture.counts.subarray(0, picture.bins)) };
    }"""
    picture = module("picture.js", script, dump)
    statistics = dump["statistics"]
    expected = [math.nan if std is None else std for std in statistics["std"]]
    assert [float(text) for text in picture["std"]] == pytest.approx(expected, nan_ok=True, rel=1e-15)
    assert picture["nan"] == statistics["nan"]
    assert picture["counts"] == statistics["histogram"]["counts"][0]
    assert (picture["loss"], picture["seq"]) == ("NaN", 3)


@pytest.mark.parametrize(
    ("name", "attributes", "inputs", "text"),
    [
        ("matmul", {}, ["a + b", "c"], "(a + b) @ c"),
        ("sub", {}, ["a", "b + c"], "a − (b + c)"),
        ("add", {}, ["a", "b · c"], "a + b · c"),
        ("mul", {"other": 2.0}, ["a − b"], "2 · (a − b)"),
        ("rsub", {"other": 1}, ["a"], "1 − a"),
        ("div", {}, ["a", "b · c"], "a / (b · c)"),
        ("pow", {"exponent": 2}, ["a − b"], "(a − b)²"),
        ("clamp_min", {"min": 0.0}, ["a + b"], "max(a + b, 0)"),
        ("t", {}, ["a @ b"], "(a @ b)ᵀ"),
        ("linear", {}, ["x", "w", "b"], "x @ wᵀ + b"),
        ("softmax", {"dim": -1, "dtype": None}, ["a"], "softmax(a, dim=−1)"),
    ],
)
def test_brackets_stand_where_they_are_needed(module, name, attributes, inputs, text):
    binds = {"+": 2, "−": 2, "·": 3, "@": 3}
    terms = [{"text": each, "binds": next((binds[c] for c in each if c in binds), 6)} for each in inputs]
    op = {"name": name, "attributes": attributes, "inputs": inputs, "outputs": ["o"]}
    assert module("formula.js", "(m, [op, terms]) => m.termOf(op, terms).text", [op, terms]) == text


def test_arrow_keys_prefer_what_lies_straight_ahead(module):
    boxes = [
        {"id": "from", "x": 0, "y": 0, "w": 10, "h": 10},
        {"id": "ahead", "x": 40, "y": 2, "w": 10, "h": 10},
        {"id": "nearer but aside", "x": 20, "y": 60, "w": 10, "h": 10},
    ]
    script = "(m, [boxes, arrow]) => m.neighbour(boxes, boxes[0], arrow)?.id ?? null"
    for arrow, expected in [("ArrowRight", "ahead"), ("ArrowDown", "nearer but aside"), ("ArrowLeft", None)]:
        assert module("navigation.js", script, [boxes, arrow]) == expected
