"""The page's modules without a page: formats, addresses, frames, formulas."""

import base64
import itertools
import math
import re
import struct

import pytest
from figures import significant
from node import Node

from chainrule.spec import ModelSpec
from chainrule.spec.programs import PROGRAMS


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
def test_numbers_have_three_significant_digits(module, value, text):
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
        ("softmax", {"dim": 0, "_stacklevel": 3, "dtype": None}, ["a"], "softmax(a, dim=0)"),
        ("add", {"alpha": 2}, ["a", "b + c"], "a + 2 · (b + c)"),
        ("sub", {"alpha": 3}, ["a", "b"], "a − 3 · b"),
        ("mul_", {"1": 2}, ["a"], "2 · a"),
        ("rpow", {"1": 2}, ["a"], "2^a"),
        ("pow", {"input": 2}, ["a"], "2^a"),
        ("getitem", {"index": [":", None]}, ["a"], "a[:, None]"),
        ("getitem", {"index": 0}, ["a + b"], "(a + b)[0]"),
        ("div", {"other": 3, "rounding_mode": "floor"}, ["a"], "div(a, other=3, rounding_mode=floor)"),
        ("transpose", {"dim0": 1, "dim1": 2}, ["a"], "transpose(a, 1, 2)"),
        ("transpose", {"dim0": -2, "dim1": -1}, ["a"], "aᵀ"),
        (
            "cross_entropy",
            {"ignore_index": -100, "reduction": "mean", "label_smoothing": 0.0},
            ["a", "b"],
            "cross_entropy(a, b)",
        ),
        (
            "conv2d",
            {"stride": [2, 2], "padding": [0, 0], "dilation": [1, 1], "groups": 1},
            ["a", "b"],
            "conv2d(a, b, stride=(2, 2))",
        ),
    ],
)
def test_brackets_stand_where_they_are_needed(module, name, attributes, inputs, text):
    binds = {"+": 2, "−": 2, "·": 3, "@": 3}
    terms = [{"text": each, "binds": next((binds[c] for c in each if c in binds), 6)} for each in inputs]
    op = {"name": name, "attributes": attributes, "inputs": inputs, "outputs": ["o"]}
    assert module("rules/terms.js", "(m, [op, terms]) => m.termOf(op, terms).text", [op, terms]) == text


def test_long_names_are_shortened_in_the_middle(module):
    names = ["layers.0.linear", "encoder." + "very_long_module_name_" * 6 + ".0.weight"]
    short = module("rules/terms.js", "(m, names) => names.map(m.shortName)", names)
    assert short == ["layers.0.linear", "encoder.very…odule_name_.0.weight"]


def test_the_next_spec_is_sent_before_the_picture_is_drawn_and_the_last_one_wins():
    """The server computes while the page draws: what waits goes out first, and what was overtaken is never sent."""
    with Node() as node:  # it goes on to live, with what it was given in place of a page
        told = node.run(
            "live.js",
            """async (m) => {
                const log = [];
                const sockets = [];
                class Socket extends EventTarget {
                    constructor() { super(); sockets.push(this); }
                    send(text) { log.push(`sent ${JSON.parse(text).seq} ×${JSON.parse(text).spec.scale}`); }
                    close() {}
                }
                const location = { protocol: "http:", host: "localhost" };
                const document = new EventTarget();
                Object.assign(globalThis, { WebSocket: Socket, document, location, addEventListener() {} });
                const picture = ({ seq, spec }) => log.push(`picture ${seq} ×${spec.scale}`);
                const live = new m.Live({ picture, theory() {}, error() {}, state() {} }, () => "");
                live.start();
                const [socket] = sockets;
                const receive = (data) => socket.dispatchEvent(new MessageEvent("message", { data }));
                socket.dispatchEvent(new Event("open"));
                const parts = { modules: [], ops: [], tensors: [], saved: [], layers: [], sources: {} };
                const trace = { ...parts, statistics: { tensor: [] } };
                receive(JSON.stringify({ type: "topology", topology: 1, trace }));
                const frame = (seq) => {
                    const header = new DataView(new ArrayBuffer(48));
                    "CRF1".split("").forEach((letter, at) => header.setUint8(at, letter.charCodeAt(0)));
                    [seq, 1, 0, 64, 8].forEach((value, at) => header.setUint32(4 + 4 * at, value, true));
                    header.setUint32(44, 4, true);
                    return header.buffer;
                };
                for (const scale of [1, 2, 3]) live.request({ scale });
                receive(frame(1));
                receive(frame(2));
                return log;
            }""",
        )
    assert told == ["sent 1 ×1", "sent 2 ×3", "picture 1 ×1", "picture 2 ×3"]


@pytest.mark.parametrize(
    "query",
    [
        "",
        "widths=100x51&activation=linear&init=standard_normal&scale=0.1",
        "last_activation=true&bias=false&seed=7",
        "init=lecun_normal&scale=1.6667&bias_std=0.25&dtype=float64",
        "seed=9223372036854775807",
        *(f"program={program}" for program in PROGRAMS if program not in ("mlp", "linear_cpp")),
        *(f"program=matmul&rung={rung}&widths=4,3" for rung in ("loops", "einsum", "@")),
        "program=mul_constant&constant=-0.000001&seed=1",
        "program=linear_function&bias=false&dtype=float64",
    ],
)
def test_the_page_and_the_server_write_one_address(answer, module, query):
    page = answer(f"/?{query}")
    data = re.search(r'<script type="application/json" id="page-data">(.*?)</script>', page, re.DOTALL)[1]
    script = """(m, text) => {
        const page = JSON.parse(text);
        return [page.query, m.specQuery(page, m.parseSpec(page, page.query))];
    }"""
    server, page = module("url-state.js", script, data)
    assert page == server == query


SPECS = [
    ModelSpec(),
    ModelSpec(seed=7, dtype="float64", widths="9,8,1", batch=3, activation="tanh", init="uniform", scale=2),
    ModelSpec(program="exp", widths=9, batch=4),
    ModelSpec(program="matmul", rung="@", seed=3),
    ModelSpec(program="linear_function", bias=False, scale=0.5),
    ModelSpec(program="neuron", bias_std=0.25, init="zeros"),
]


def test_the_page_and_the_server_go_to_another_program_alike(answer, module):
    page = answer("/")
    data = re.search(r'<script type="application/json" id="page-data">(.*?)</script>', page, re.DOTALL)[1]
    asked = [[spec.as_dict(), program] for spec in SPECS for program in PROGRAMS]
    script = """(m, [text, asked]) => {
        const page = JSON.parse(text);
        return asked.map(([spec, program]) => m.specQuery(page, m.withProgram(page, spec, program)));
    }"""
    expected = [spec.replace(program=program).query() for spec in SPECS for program in PROGRAMS]
    assert module("url-state.js", script, [data, asked]) == expected
    # A mistaken query goes to the server as it is, which names the mistake.
    kept = "(m, [text, queries]) => queries.map((q) => m.specQuery(JSON.parse(text), m.parseSpec(JSON.parse(text), q)))"
    mistaken = ["program=exp&scale=2", "program=perceptron&seed=1", "rung=loops"]
    assert module("url-state.js", kept, [data, mistaken]) == mistaken
