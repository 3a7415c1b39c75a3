"""Graphs and their layouts, without a page around them: groups and folds, places, lines, and what is kept of them."""

import itertools
import json
from pathlib import Path

import pytest
from reference_models import MODELS

from chainrule.dump.wire import dump_json, dump_topology

CHECK = Path(__file__).with_name("drawing_check.js").read_text(encoding="utf-8")


@pytest.fixture
def lay_out(module):
    """Boxes by id of a topology at a state of expansion, checked for every known error."""

    def run(topology, expansion=None, orientation="horizontal", **options):
        script = f"""async (_, {{ topology, expansion, options }}) => {{
            {CHECK}
            const laid = await lay(topology, expansion, options);
            const wrong = check(laid.graph, laid.drawing, options.orientation === "vertical");
            const {{ width, height, axis, isElastic, natural }} = laid.drawing;
            return {{ wrong, boxes: boxesOf(laid), width, height, axis, isElastic, natural }};
        }}"""
        argument = {
            "topology": topology,
            "expansion": expansion or {},
            "options": {"orientation": orientation, **options},
        }
        drawing = module("layout/layout.js", script, argument)
        assert drawing["wrong"] == []
        return drawing

    return run


@pytest.fixture(scope="module")
def topology_of():
    """The topology of a reference model."""
    made = {}

    def topology(name):
        if name not in made:
            made[name] = json.loads(dump_json(dump_topology(MODELS[name]())))
        return made[name]

    return topology


@pytest.mark.parametrize("orientation", ["horizontal", "vertical"])
@pytest.mark.parametrize(
    ("name", "expansion"),
    [
        ("chapter", {}),
        ("chapter", {"level": "all"}),
        ("layers50", {}),
        ("layers50", {"fold": "on"}),
        ("layers50", {"fold": "on", "toggled": ["layers.0*49/forward"]}),
        ("layers50", {"fold": "on", "toggled": ["layers.0*49/forward", "layers.0*49.rest/forward"]}),
        ("residual", {}),
        ("residual", {"level": "all"}),
        ("lstm", {}),
        ("lstm", {"level": "all"}),
        ("lstm", {"level": "1", "fold": "on"}),
        ("gpt_block", {"level": "1"}),
        ("gpt_block", {}),
        ("gpt_block", {"level": "all"}),
    ],
)
def test_every_box_has_its_place_and_every_line_its_way(topology_of, lay_out, name, expansion, orientation):
    drawing = lay_out(topology_of(name), expansion, orientation)
    halves = [box["half"] for box in drawing["boxes"].values()]
    assert halves == sorted(halves)
    if drawing["isElastic"] and orientation == "horizontal":
        assert drawing["width"] == pytest.approx(860, abs=0.01)


@pytest.mark.parametrize("orientation", ["horizontal", "vertical"])
@pytest.mark.parametrize(
    "query",
    [
        "style=functions",
        "style=autograd_function",
        "style=module",
        "bias=false&activation=linear",
        "last_activation=true&activation=gelu",
        "style=module&loss=cross_entropy&widths=100,50,10",
    ],
)
def test_at_layer_level_one_half_is_the_mirror_image_of_the_other(dump_of, lay_out, query, orientation):
    dump = dump_of(query)
    drawing = lay_out(dump, {}, orientation)
    boxes = drawing["boxes"]
    names = {tensor["id"]: tensor["name"] for tensor in dump["tensors"]}
    across, thick = ("y", "h") if orientation == "horizontal" else ("x", "w")
    for layer in dump["layers"]:
        for part in ("preactivation", "activation", "weight", "gradient"):
            assert layer[part] is None or names[layer[part]] in boxes
    for name, box in boxes.items():
        twin = boxes.get(name.replace("/forward", "/backward") if "/" in name else f"{name}.g")
        if twin is not None and box["half"] == 0 and name != "loss":
            middles = [each[across] + each[thick] / 2 for each in (box, twin)]
            assert middles[0] + middles[1] == pytest.approx(2 * drawing["axis"], abs=0.01), name


@pytest.mark.parametrize("depth", [1, 2, 7, 33, 64])
def test_one_to_sixty_four_layers_fit(dump_of, lay_out, depth):
    drawing = lay_out(dump_of(f"widths=4x{depth + 1}&batch=2"), {})
    assert drawing["isElastic"] is True
    assert drawing["width"] == pytest.approx(860, abs=0.01)


def test_what_is_open_shows_what_it_holds(topology_of, lay_out):
    closed = lay_out(topology_of("chapter"), {})["boxes"]
    assert {name for name, box in closed.items() if box["kind"] == "group" and box["half"] == 0} == {
        "layers.0/forward",
        "layers.1/forward",
        "layers.2/forward",
        "loss/forward",
    }
    assert {name for name, box in closed.items() if box["kind"] == "tensor" and box["half"] == 0} == {
        *("x", "w1", "b1", "l1", "l2", "w2", "b2", "out", "y", "loss"),
    }
    opened = lay_out(topology_of("chapter"), {"toggled": ["layers.0/forward"]})
    boxes = opened["boxes"]
    assert opened["isElastic"] is False
    assert boxes.keys() - closed.keys() == {
        # Two forward ops and what they pass on; six backward ops, and the transposes they make.
        *("n0", "n1", "layers.0.matmul"),
        *("n22", "layers.0.t", "n23", "n24", "layers.0.t_1", "n25", "n26"),
    }
    assert {name for name, box in boxes.items() if box["frame"] == "layers.0/forward"} == {
        *("n0", "w1", "layers.0.matmul", "n1", "b1"),
    }
    assert {box["frame"] for name, box in boxes.items() if name in ("n23", "w1.g", "b1.g")} == {"layers.0/backward"}
    # Backward ops stand beneath their twin, in order of execution.
    backward = [boxes[name] for name in ("n22", "n23", "n24", "n25")]
    assert [box["y"] for box in backward] == sorted(box["y"] for box in backward)
    middles = {round(box["x"] + box["w"] / 2, 2) for box in [boxes["n0"], *backward]}
    assert len(middles) == 1


def test_closed_blocks_hide_what_stays_within(topology_of, lay_out):
    boxes = lay_out(topology_of("gpt_block"), {"level": "1"})["boxes"]
    assert boxes["block/forward"]["kind"] == "group"
    inner = [name for name in boxes if name.startswith("block.")]
    # Its result is all of the block that is seen.
    assert len([name for name in inner if boxes[name]["half"] == 0]) == 1
    assert "block/backward" in boxes


def test_repetitions_are_folded(topology_of, module):
    script = """async (m, [layers, lstm, chapter]) => {
        const of = (topology, ids) => {
            const graph = m.buildGraph(topology);
            const { arrays } = graph;
            return ids.map((id) => {
                const { index } = m.find(graph, id);
                return [m.GROUP_KINDS[arrays.groupKind[index]], graph.groupLabel[index], arrays.groupRepeats[index],
                        arrays.groupParent[index] < 0 ? null : graph.groupId[arrays.groupParent[index]]];
            });
        };
        const graph = m.buildGraph(chapter);
        const state = (expansion) => {
            const whole = { level: "layer", toggled: [], fold: "auto", ...expansion };
            const { open, foldOn } = m.openGroups(graph, whole);
            return [[...open], foldOn];
        };
        const [fold, first, last] = ["layers.0*49", "layers.0/forward", "layers.98/forward"];
        const ids = [...graph.groupId, "l1", "layers.0.matmul", "t2", "n3", "layers.1/backward"];
        return {
            layers: of(layers, [`${fold}/forward`, `${fold}.rest/forward`, first, "layers.2/forward", last]),
            lstm: of(lstm, ["cell*4/forward", "cell/forward.4"]),
            chapter: graph.groupId,
            states: [{}, { toggled: ["layers.1/forward"] }, { level: "0", fold: "on" }, { level: "all" }].map(state),
            round: ids.map((id) => m.idOf(graph, m.find(graph, id))),
            unknown: m.find(graph, "__proto__"),
        };
    }"""
    found = module("graph/graph.js", script, [topology_of(name) for name in ("layers50", "lstm", "chapter")])
    assert found["layers"] == [
        ["fold", "Lin → Relu", 49, "model/forward"],
        ["rest", "48 more", 48, "layers.0*49/forward"],
        ["module", "Lin", 0, "layers.0*49/forward"],
        ["module", "Lin", 0, "layers.0*49.rest/forward"],
        ["module", "Lin", 0, "model/forward"],
    ]
    assert found["lstm"] == [
        ["fold", "getitem → LSTMCell", 4, "model/forward"],
        ["module", "LSTMCell", 0, "cell*4.rest/forward"],
    ]
    # The container of the layers is nothing to look at.
    groups = ["model/forward", "layers.0/forward", "layers.1/forward", "layers.2/forward", "loss/forward"]
    assert found["chapter"] == groups
    assert found["states"] == [
        [[1, 0, 0, 0, 0], False],
        [[1, 0, 1, 0, 0], False],
        [[1, 0, 0, 0, 0], True],
        [[1, 1, 1, 1, 1], False],
    ]
    assert found["round"] == [*groups, "l1", "layers.0.matmul", "layers.0.matmul", "n3", "layers.1/backward"]
    assert found["unknown"] is None


def test_opening_a_group_moves_nothing_within_others(topology_of, module):
    """Relative to its frame; and a layout from what was kept is the layout from nothing."""
    script = f"""async (m, topology) => {{
        {CHECK}
        const cache = new m.LayoutCache();
        const {"{ graph, drawing: before }"} = await lay(topology, {{}}, {{}}, cache);
        const toggled = ["cell.hidden/forward.2"];
        const after = (await lay(graph, {{ toggled }}, {{}}, cache)).drawing;
        const fresh = (await lay(graph, {{ toggled }})).drawing;
        const back = (await lay(graph, {{}}, {{}}, cache)).drawing;
        const isSame = (a, b) => ["rect", "points", "source"].every((name) => a[name].join() === b[name].join());
        const inFrames = (drawing) => {{
            const boxes = boxesOf({{ graph, drawing }});
            const held = Object.entries(boxes).filter(([, box]) => box.frame !== null);
            return Object.fromEntries(held.map(([id, {{ x, y, w, h, frame }}]) => {{
                const around = boxes[frame];
                const at = [x - around.x, y - around.y, w, h].map((value) => Math.round(value * 50) / 50);
                return [id, {{ frame, at }}];
            }}));
        }};
        const kept = {{ isAsFresh: isSame(after, fresh), isBack: isSame(back, before) }};
        return {{ before: inFrames(before), after: inFrames(after), ...kept }};
    }}"""
    found = module("layout/layout.js", script, topology_of("lstm"))
    assert found["isAsFresh"] is True
    assert found["isBack"] is True
    moved = {name for name, place in found["before"].items() if found["after"].get(name) != place}
    frames = {found["before"][name]["frame"] for name in moved}
    assert frames <= {"cell/forward.2", "cell/backward.2"}
    assert len(found["before"]) > len(moved) + 50


def test_an_overtaken_request_is_never_answered(topology_of, module):
    script = """async (m, [chapter, lstm]) => {
        const { buildGraph } = await import("/static/core/graph/graph.js");
        const { LayoutQueue } = await import("/static/core/layout/queue.js");
        const options = { orientation: "horizontal", length: 860, breadth: 480 };
        const expansion = { level: "all", toggled: [], fold: "off" };
        const graphs = [buildGraph(chapter), buildGraph(lstm)];
        const answers = [];
        const asked = [];
        // In a worker, all at once: the last is laid out.
        await new Promise((resolve) => {
            const client = new m.LayoutClient((answer) => {
                answers.push([answer.request, answer.key, answer.drawing.boxes > 10]);
                if (answer.request === asked.at(-1)) resolve();
            });
            for (const which of [0, 1, 0, 1]) {
                asked.push(client.ask({ key: `k${which}`, graph: graphs[which], expansion, options }));
            }
        });
        // While one is under way, and time seems to fly: the newer one is looked for between groups.
        const direct = [];
        const { arrays } = graphs[1];
        const open = new Uint8Array(arrays.groups).fill(1);
        const request = (number) =>
            ({ request: number, key: "k", arrays: number === 1 ? arrays : null, open, foldOn: false, options });
        const now = performance.now;
        let clock = 0;
        performance.now = () => (clock += 1000);
        await new Promise((resolve) => {
            let pauses = 0;
            const queue = new LayoutQueue(({ request }) => { direct.push(request); resolve(); }, async () => {
                pauses += 1;
                if (pauses === 3) queue.ask(request(2));
            });
            queue.ask(request(1));
        });
        performance.now = now;
        return { answers: answers.map(([number, ...rest]) => [asked.indexOf(number), ...rest]), direct };
    }"""
    found = module("layout/client.js", script, [topology_of("chapter"), topology_of("lstm")])
    assert found["answers"] == [[3, "k1", True]]
    assert found["direct"] == [2]


def test_the_arrow_keys_walk_along_lines(topology_of, module):
    script = f"""async (m, topology) => {{
        {CHECK}
        const walked = async (expansion, orientation, from, arrows) => {{
            const laid = await lay(topology, expansion, {{ orientation }});
            const ids = Object.keys(boxesOf(laid));
            const way = [from];
            let box = ids.indexOf(from);
            for (const arrow of arrows) {{
                box = m.walk(laid.drawing, box, `Arrow${{arrow}}`, orientation);
                way.push(ids[box] ?? null);
            }}
            return way;
        }};
        return [
            await walked({{}}, "horizontal", "x", ["Right", "Right", "Right", "Left", "Down", "Left", "Up"]),
            await walked({{}}, "horizontal", "layers.0/forward", ["Up", "Up", "Down", "Down", "Down", "Down"]),
            await walked({{}}, "horizontal", "loss/forward", ["Right", "Left"]),
            await walked({{}}, "vertical", "x", ["Down", "Down", "Right", "Up"]),
            await walked({{ toggled: ["layers.0/forward"] }}, "horizontal", "x", ["Right", "Right", "Right", "Right"]),
            await walked({{ toggled: ["layers.0/forward"] }}, "horizontal", "n22", ["Down", "Down", "Up", "Up", "Up"]),
            await walked({{ toggled: ["layers.0/forward"] }}, "horizontal", "n0", ["Up", "Up", "Down", "Down"]),
            await walked({{ toggled: ["layers.0/forward"] }}, "horizontal", "n0", ["Left", "Right", "Left", "Left"]),
            await walked({{ toggled: ["layers.0/forward"] }}, "horizontal", "l1.g", ["Left", "Right"]),
            await walked({{ toggled: ["layers.0/forward"] }}, "horizontal", "n26", ["Right", "Right"]),
            await walked({{ toggled: ["layers.0/forward"] }}, "vertical", "layers.0/forward", ["Down", "Up", "Up"]),
        ];
    }}"""
    assert module("view/navigation.js", script, topology_of("chapter")) == [
        ["x", "layers.0/forward", "l1", "layers.1/forward", "l1", "l1.g", "layers.0/backward", "layers.0/forward"],
        ["layers.0/forward", "w1", "b1", "w1", "layers.0/forward", "layers.0/backward", "w1.g"],
        ["loss/forward", "loss", "loss/forward"],
        ["x", "layers.0/forward", "l1", "l1.g", "layers.0/backward"],
        ["x", "n0", "layers.0.matmul", "n1", "l1"],
        ["n22", "layers.0.t", "n23", "layers.0.t", "n22", "n0"],
        ["n0", "w1", "layers.0/forward", "n0", "n22"],
        ["n0", "layers.0/forward", "n0", "layers.0/forward", "x"],
        ["l1.g", "n26", "layers.0/backward"],
        ["n26", "layers.0/backward", "l1.g"],
        ["layers.0/forward", "n0", "layers.0/forward", "x"],
    ]


def graph(modules, ops, tensors, saved=()):
    """A topology; ops: (id, phase, module, inputs, outputs, twin), tensors: (id, role, gradient_of)."""
    producer = {output: op[0] for op in ops for output in op[4]}
    readers = {tensor[0]: [op[0] for op in ops if tensor[0] in op[3]] for tensor in tensors}
    return {
        "schema": "chainrule.trace/1",
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
        "sources": {},
        "op_us": None,
    }


@pytest.mark.parametrize("orientation", ["horizontal", "vertical"])
@pytest.mark.parametrize("level", ["layer", "all"])
def test_the_parts_of_a_gradient_stand_beneath_it(module, lay_out, orientation, level):
    modules = [
        ("m0", "", "Net", None),
        ("m1", "a", "Linear", "m0"),
        ("m2", "b", "Linear", "m0"),
        ("m3", "loss", "Mse", "m0"),
    ]
    topology = graph(
        modules,
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
    boxes = lay_out(topology, {"level": level}, orientation)["boxes"]
    along, depth = ("x", "w") if orientation == "horizontal" else ("y", "h")
    across = "y" if orientation == "horizontal" else "x"
    # The last gradient is the whole one; the op that adds the parts up, and the parts, stand beyond it.
    assert boxes["h.g"][along] == pytest.approx(boxes["h"][along], abs=0.01)
    assert boxes["h.g"][depth] == pytest.approx(boxes["h"][depth], abs=0.01)
    places = [boxes[name][across] for name in ("h.g", "n7", "h.g2", "h.g1")]
    assert places == sorted(places)

    script = f"""async (m, {{ topology, level }}) => {{
        {CHECK}
        const {{ graph, drawing }} = await lay(topology, {{ level }});
        const ids = Object.keys(boxesOf({{ graph, drawing }}));
        return Array.from({{ length: drawing.routes }}, (_, route) =>
            [ids[drawing.source[route]], ids[drawing.target[route]], m.ROUTE_KINDS[drawing.routeKind[route]]]);
    }}"""
    routes = {tuple(route) for route in module("layout/layout.js", script, {"topology": topology, "level": level})}
    a, b, loss = ("n8", "n6", "n4") if level == "all" else ("a/backward", "b/backward", "loss/backward")
    saved = {("x", a), ("wa", a), ("h", b), ("wb", b), ("s", loss)}
    assert {route[:2] for route in routes if route[2] == "saved"} == saved
    assert {("n5", "h.g1", "data"), (b, "h.g2", "data"), ("h.g1", "n7", "data"), ("n7", "h.g", "data")} <= routes
    assert ("loss", loss, "fold") in routes


def test_a_module_called_twice_is_two_groups(lay_out):
    topology = graph(
        [("m0", "", "Net", None), ("m1", "a", "Linear", "m0"), ("m2", "b", "Relu", "m0")],
        [
            ("n0", "forward", "m1", ["x"], ["h"], None),
            ("n1", "forward", "m2", ["h"], ["i"], None),
            ("n2", "forward", "m1", ["i"], ["j"], None),
        ],
        [("x", "input", None), *[(name, "activation", None) for name in "hij"]],
    )
    boxes = lay_out(topology)["boxes"]
    assert [name for name in boxes if boxes[name]["kind"] == "group"] == ["a/forward", "b/forward", "a/forward.2"]
    # An op is drawn though nothing reads its result.
    assert boxes["j"]["x"] > boxes["a/forward.2"]["x"]


def test_backward_ops_of_no_forward_op_are_drawn_beneath(lay_out):
    """As in a second derivative: the gradient's own gradient, by ops that mirror nothing."""
    topology = graph(
        [("m0", "", "Net", None)],
        [
            ("n0", "forward", "m0", ["x"], ["h"], None),
            ("n1", "forward", "m0", ["h"], ["loss"], None),
            ("n2", "backward", "m0", ["loss.g"], ["h.g"], "n1"),
            ("n3", "backward", "m0", ["h.g"], ["x.g"], "n0"),
            ("n4", "backward", "m0", ["x.g"], ["u"], None),
            ("n5", "backward", "m0", ["u", "h.g"], ["v"], None),
            ("n6", "backward", "m0", ["v"], ["x.gg"], "n3"),
        ],
        [
            ("x", "input", None),
            ("h", "activation", None),
            ("loss", "loss", None),
            *[(f"{name}.g", "gradient", name) for name in ("loss", "h", "x")],
            *[(name, "gradient", None) for name in ("u", "v", "x.gg")],
        ],
    )
    drawing = lay_out(topology)
    boxes = drawing["boxes"]
    assert {"n4", "u", "n5", "v", "n6"} <= boxes.keys()
    floor = max(box["y"] + box["h"] for name, box in boxes.items() if name not in ("n4", "u", "n5", "v", "n6"))
    assert all(boxes[name]["y"] >= floor for name in ("n4", "u", "n5", "v", "n6"))
    # All of the backward half runs against the depth.
    assert boxes["n4"]["x"] > boxes["u"]["x"] > boxes["n5"]["x"] > boxes["v"]["x"] > boxes["n6"]["x"]
    assert drawing["isElastic"] is False


def test_a_graph_in_circles_is_drawn_somehow(module):
    """A dump with a cycle is turned away before; should one get through, the layout ends all the same."""
    topology = graph(
        [
            ("m0", "", "Net", None),
            ("m1", "a", "Linear", "m0"),
            ("m2", "b", "Linear", "m1"),
            ("m3", "c", "Linear", "m2"),
        ],
        [
            ("n0", "forward", "m1", ["x", "j"], ["h"], None),
            ("n1", "forward", "m2", ["h"], ["i"], None),
            ("n2", "forward", "m3", ["i"], ["j"], None),
            ("n3", "backward", "m3", ["h.g"], ["h.g"], "n2"),
        ],
        [("x", "input", None), *[(name, "activation", None) for name in "hij"], ("h.g", "gradient", "h")],
    )
    topology["modules"][1]["parent"] = "m3"
    script = f"""async (m, topology) => {{
        {CHECK}
        const counts = [];
        for (const level of ["0", "layer", "all"]) counts.push((await lay(topology, {{ level }})).drawing.boxes);
        return counts;
    }}"""
    assert all(count > 2 for count in module("layout/layout.js", script, topology))


def test_a_thousand_layers_deep_and_a_thousand_modules_nested_need_no_recursion(module):
    n = 1000
    ops = [(f"n{i}", "forward", f"m{i + 1}", [f"h{i}"], [f"h{i + 1}"], None) for i in range(n)]
    flat = [("m0", "", "Net", None), *[(f"m{i + 1}", f"l{i}", "Linear", "m0") for i in range(n)]]
    nested = [("m0", "", "Net", None), *[(f"m{i + 1}", ".".join("b" * (i + 1)), "Block", f"m{i}") for i in range(n)]]
    tensors = [("h0", "input", None), *[(f"h{i + 1}", "activation", None) for i in range(n)]]
    script = f"""async (m, [flat, nested]) => {{
        {CHECK}
        const starts = [];
        const laid = await lay(flat, {{}});
        for (const box of Object.values(boxesOf(laid))) if (box.kind === "tensor") starts.push(box.x);
        const opened = await lay(flat, {{ level: "all" }});
        return [starts, opened.drawing.boxes, (await lay(nested, {{ level: "all" }})).drawing.boxes];
    }}"""
    starts, opened, nest = module("layout/layout.js", script, [graph(flat, ops, tensors), graph(nested, ops, tensors)])
    assert len(starts) == n + 1
    assert all(a < b for a, b in itertools.pairwise(starts))
    assert opened == 3 * n + 1
    assert nest > 2 * n


SYNTHETIC = (Path(__file__).parents[2] / "bench" / "graph" / "synthetic.mjs").read_text(encoding="utf-8")

TOGGLED = """async ({ LayoutCache, layoutGraph, layoutSteps }, { topology, fold, orientation, rounds }) => {
    const { buildGraph, openGroups } = await import("/static/core/graph/graph.js");
    const { arrays } = buildGraph(topology ?? synthetic(4, 2));
    const { open, foldOn } = openGroups({ arrays, groupId: [] }, { level: "all", toggled: [], fold });
    const options = { orientation, length: 1400, breadth: 560 };
    const cache = new LayoutCache();
    let seed = 7;
    const random = (below) => {
        seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0;
        return Math.floor((seed / 2 ** 32) * below);
    };
    const wrong = [];
    for (let round = 0; round < rounds && wrong.length === 0; round += 1) {
        const opened = { open: open.slice(), foldOn };
        // Now and then one layout is given up half-way.
        const steps = layoutSteps(arrays, opened, options, cache);
        for (let step = random(4) === 0 ? random(8) : 0; step > 0; step -= 1) if (steps.next().done) break;
        const drawing = layoutGraph(arrays, opened, options, cache);
        for (const [name, wanted] of Object.entries(layoutGraph(arrays, opened, options))) {
            const found = drawing[name];
            const isSame = (a, b) => (wanted instanceof Float32Array ? Math.abs(a - b) <= 1e-3 : a === b);
            if (!ArrayBuffer.isView(wanted)) {
                if (found !== wanted && !(Math.abs(found - wanted) <= 1e-3)) wrong.push([round, name, found, wanted]);
            } else if (found.length !== wanted.length) wrong.push([round, name, found.length, wanted.length]);
            else {
                const at = wanted.findIndex((value, index) => !isSame(found[index], value));
                if (at >= 0) wrong.push([round, name, at, found[at], wanted[at]]);
            }
        }
        for (let times = random(5) === 0 ? 4 : 1; times > 0; times -= 1) open[random(open.length)] ^= 1;
    }
    return wrong;
}""".replace("=> {", "=> {" + SYNTHETIC.replace("export function", "function"), 1)


@pytest.mark.parametrize("orientation", ["horizontal", "vertical"])
@pytest.mark.parametrize("fold", ["on", "off"])
@pytest.mark.parametrize("name", ["chapter", "layers50", "residual", "lstm", "gpt_block", "synthetic"])
def test_whatever_was_opened_and_closed_before_the_drawing_is_the_same(topology_of, module, name, fold, orientation):
    """Lines that only moved are taken over from the last drawing: every column equals a fresh layout's."""
    argument = {
        "topology": None if name == "synthetic" else topology_of(name),
        "fold": fold,
        "orientation": orientation,
        "rounds": 25,
    }
    assert module("layout/layout.js", TOGGLED, argument) == []


def test_lines_are_taken_over_where_nothing_opened(topology_of, module):
    script = """async ({ LayoutCache, layoutGraph }, topology) => {
        const { buildGraph, openGroups } = await import("/static/core/graph/graph.js");
        const { RouteList } = await import("/static/core/layout/route-list.js");
        const { arrays, groupId } = buildGraph(topology);
        const state = openGroups({ arrays, groupId }, { level: "all", toggled: [], fold: "off" });
        const options = { orientation: "horizontal", length: 1400, breadth: 560 };
        const cache = new LayoutCache();
        const take = RouteList.prototype.take;
        let taken = 0;
        RouteList.prototype.take = function (list, from, to, ...rest) {
            taken += to - from;
            take.call(this, list, from, to, ...rest);
        };
        layoutGraph(arrays, state, options, cache);
        const first = taken;
        state.open[groupId.indexOf("head/forward")] ^= 1;
        const { routes } = layoutGraph(arrays, state, options, cache);
        RouteList.prototype.take = take;
        return { first, share: taken / routes };
    }"""
    taken = module("layout/layout.js", script, topology_of("residual"))
    assert taken["first"] == 0
    assert taken["share"] > 0.5


def test_what_leads_nowhere_stands_out_of_the_way(topology_of, lay_out):
    """As what counts the batches of a normalisation: the chain runs straight beneath it."""
    topology = topology_of("residual")
    ops = {op["id"]: op["name"] for op in topology["ops"] if op["phase"] == "forward"}
    boxes = lay_out(topology, {"level": "all"})["boxes"]
    middle = {box: boxes[box]["y"] + boxes[box]["h"] / 2 for box in ops}
    (chain,) = {middle[op] for op, name in ops.items() if name in ("batch_norm", "relu")}
    counting = [middle[op] for op, name in ops.items() if name == "add_"]
    assert len(counting) == 2
    assert all(at < chain for at in counting)
