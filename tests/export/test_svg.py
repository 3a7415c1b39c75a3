"""Graphs as SVG: deterministic documents, safe for any names; the embedded engine and its errors."""

import asyncio
import errno
import json
import re
import subprocess
import sys
import threading
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from bad_dumps import EVIL_NAMES, with_evil_names
from make_graphs import GOLDEN_VIEWS, GRAPHS, draw
from reference_models import MODELS, VIEWS

from chainrule.dump.wire import dump_trace, load
from chainrule.errors import MemoryLimitError, MissingExtraError, RenderError, RequestError, StoppedError
from chainrule.export import svg
from chainrule.export.svg import to_svg
from chainrule.page.modules import bundle
from chainrule.run import trace_spec
from chainrule.spec import ModelSpec
from chainrule.stopping import Stop, stoppable
from chainrule.trace import record, scope

STATIC = Path(__file__).parents[2] / "static"
NAMESPACE = {"svg": "http://www.w3.org/2000/svg"}


@pytest.fixture(scope="module")
def traces():
    return {name: make() for name, make in MODELS.items()}


def boxes(root):
    for kind in ("op", "tensor", "group"):
        for group in root.iterfind(f".//svg:g[@class='{kind}']", NAMESPACE):
            rect = group.find("svg:rect", NAMESPACE)
            yield kind, group, *(float(rect.get(name)) for name in ("x", "y", "width", "height"))


@pytest.mark.parametrize("name", MODELS)
def test_a_picture_is_whole_and_deterministic(traces, name):
    text = to_svg(traces[name], **VIEWS[name])
    assert to_svg(traces[name], **VIEWS[name]) == text
    root = ElementTree.fromstring(text)
    assert root.get("role") == "img"
    assert root.find("svg:title", NAMESPACE).text.startswith("Computation graph of ")
    width, height = float(root.get("width")), float(root.get("height"))
    drawn = list(boxes(root))
    assert {"op", "tensor"} <= {kind for kind, *_ in drawn} | {"op"}
    for _, group, x, y, w, h in drawn:
        assert group.find("svg:title", NAMESPACE).text
        assert -0.01 <= x <= x + w <= width + 0.01
        assert -0.01 <= y <= y + h <= height + 0.01
    for at, (_, one, x, y, w, h) in enumerate(drawn):
        for _, other, x2, y2, w2, h2 in drawn[at + 1 :]:
            apart = x + w <= x2 + 0.01 or x2 + w2 <= x + 0.01 or y + h <= y2 + 0.01 or y2 + h2 <= y + 0.01
            assert apart, [each.find("svg:title", NAMESPACE).text for each in (one, other)]
    # At most two decimals, so that every machine draws the same.
    assert not re.search(r'="[^"]*\d\.\d{3}', text)


@pytest.mark.parametrize("name", GOLDEN_VIEWS)
def test_the_picture_is_the_golden_one(name):
    path = GRAPHS / f"{name}.svg"
    assert draw(name) == path.read_text(encoding="utf-8"), (
        "after an intended change: python tests/shared/make_graphs.py"
    )


def test_the_chapter_s_graph_has_names_and_figures():
    trace = trace_spec(ModelSpec())
    root = ElementTree.fromstring(to_svg(trace))
    by_title = {group.find("svg:title", NAMESPACE).text: group for _, group, *_ in boxes(root)}
    l1 = by_title["l1: preactivation, float32 200 × 50"]
    std = trace.statistics[trace.tensor_by_name["l1"].id].std
    assert [text.text for text in l1.iterfind("svg:text", NAMESPACE)] == ["l1", f"{std:.2f}"]
    (bars,) = l1.iterfind("svg:path", NAMESPACE)
    assert bars.get("d").count("V") >= 8
    assert "l1.g: gradient, float32 200 × 50" in by_title
    exploded = ElementTree.fromstring(to_svg(trace_spec(ModelSpec.parse({"preset": "deep-exploding"})), level="1"))
    assert exploded.find(".//svg:rect[@fill='url(#hatch)']", NAMESPACE) is not None


def test_a_small_tensor_shows_its_values_in_place_of_a_histogram():
    trace = trace_spec(ModelSpec(program="matmul", rung="@"))
    root = ElementTree.fromstring(to_svg(trace))
    drawn = {group.find("svg:title", NAMESPACE).text.split(":")[0]: group for _, group, *_ in boxes(root)}
    for name in ("a", "b", "c", "c.g"):
        texts = [span.text for span in drawn[name].iterfind("svg:text/svg:tspan", NAMESPACE)]
        values = trace.statistics.values[trace.tensor_by_name[name].id]
        assert [float(text.replace("−", "-")) for text in texts] == pytest.approx(values.tolist(), rel=6e-3)
        assert drawn[name].find("svg:path", NAMESPACE) is None


def test_options_choose_the_open_groups(traces):
    def count(**options):
        return len(list(boxes(ElementTree.fromstring(to_svg(traces["gpt_block"], statistic="none", **options)))))

    assert count(level="0") <= count(level="1") < count(level="layer") < count(level="all")
    layers = traces["layers50"]
    assert len(to_svg(layers, fold="on")) < len(to_svg(layers, fold="off")) / 3
    assert count(level="layer", toggled=["block.attention/forward"]) != count(level="layer")


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("level", "bogus", "'bogus' is not "),
        ("fold", "maybe", "'maybe' is not "),
        ("toggled", ["layers.0/forward", "no/forward", "l,2"], "unknown group 'no/forward', 'l,2'; "),
    ],
)
def test_the_error_of_a_bad_option_names_it(traces, key, value, says):
    with pytest.raises(RequestError, match=f"^{key}: {says}") as error:
        to_svg(traces["chapter"], **{key: value})
    assert (error.value.status, error.value.code, error.value.field) == (422, "invalid_parameter", key)


def test_toggled_is_read_as_by_the_page(engine):
    texts = ["", "a/forward", "a%2Cb/forward,c%25d/forward", "a%zz%2C,b", "%ff", "caf%C3%A9,caf\u00e9", "a+b c", "50%"]
    module = bundle(STATIC / "core" / "graph" / "expansion.js")
    view = "{ level: 'layer', toggled, fold: 'auto' }"
    script = f"(texts) => texts.map((toggled) => ({module}).expansionOf({view}).toggled)"
    answers = json.loads(engine.eval(f"JSON.stringify(({script})({json.dumps(texts)}))"))
    assert [list(svg.as_wishes({"toggled": text})["toggled"]) for text in texts] == answers
    assert answers[2] == ["a,b/forward", "c%d/forward"]
    with record() as recording:
        for path in ("first,second", "third"):
            with scope(path, "Block"):
                torch.relu(torch.ones(2)).sum()
    wishes = svg.as_wishes({"toggled": "first%2Csecond/forward"})
    assert to_svg(recording.trace, **wishes) != to_svg(recording.trace)


def test_evil_names_are_text():
    body = with_evil_names(json.loads(dump_trace(trace_spec(ModelSpec.from_query("widths=5,4,3&batch=6")))))
    text = to_svg(load(json.dumps(body)), level="all")
    root = ElementTree.fromstring(text)
    allowed = {"svg", "title", "desc", "style", "defs", "marker", "pattern", "path", "rect", "g", "text", "tspan"}
    assert {element.tag.partition("}")[2] for element in root.iter()} <= allowed
    assert not [name for element in root.iter() for name in element.attrib if name.startswith("on")]
    (style,) = root.iterfind(".//svg:style", NAMESPACE)
    assert style.text == ElementTree.fromstring(to_svg(trace_spec(ModelSpec()))).find("svg:style", NAMESPACE).text
    titles = "".join(element.text for element in root.iterfind(".//svg:title", NAMESPACE))
    assert all(name in titles for name in EVIL_NAMES[:3])


def luminance(colour):
    values = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in values]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_fonts_and_colours_are_those_of_the_style_sheet_and_legible(engine):
    css = (STATIC / "css" / "tokens.css").read_text()
    chapter = trace_spec(ModelSpec())
    root = ElementTree.fromstring(to_svg(chapter))
    assert root.attrib["font-family"] == re.search(r"--font: (.+);", css)[1]
    faces = "".join(re.findall(r"@font-face \{.+?\n\}", css, re.DOTALL))
    plain = re.sub(r"\s*([{}:;])\s*", r"\1", faces).replace(";}", "}")
    assert plain.count("@font-face") == 2
    assert plain.replace(" {", "{") == root.find("svg:style", NAMESPACE).text.replace(" {", "{")

    parts = bundle(STATIC / "core" / "takeaway" / "svg-parts.js")
    schemes = json.loads(engine.eval(f"JSON.stringify(({parts}).SCHEMES)"))
    for scheme, section in zip(("light", "dark"), css.split("@media (prefers-color-scheme: dark)"), strict=True):
        tokens = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", section))
        assert schemes[scheme] == {name: tokens[name] for name in schemes[scheme]}
        # WCAG 2.2: 4.5 for text, 3 for graphics.
        least = dict.fromkeys(("ink", "ink-soft", "ink-muted", "forward", "backward", "warning"), 4.5) | {
            "parameter": 3
        }
        for name, ratio in least.items():
            high, low = sorted((luminance(tokens[name]), luminance(tokens["paper"])), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= ratio, (scheme, name)
    assert schemes["dark"]["paper"] in to_svg(chapter, scheme="dark")
    assert schemes["dark"]["paper"] not in to_svg(chapter)


@pytest.fixture
def broken_page(tmp_path, monkeypatch):
    """A separate engine with a page that fails in several ways."""
    (tmp_path / "core" / "takeaway").mkdir(parents=True)
    (tmp_path / svg.ENTRY).write_text(
        "export function forever() { for (;;); }\n"
        'const text = `[${"[1],".repeat(2e6)}1]`;\nexport function parse() { return JSON.parse(text).length; }\n'
        "export function grow() { for (const all = []; ; ) all.push(new Array(1e5).fill(0.5)); }\n"
        'export function fail() { throw new RangeError("no such thing"); }\n'
        "export function litter() { return Array.from({ length: 60 }, () => Array(1e5).fill(0.5)).length; }\n"
        "export function well() { return 7; }\n"
    )
    monkeypatch.setattr(svg.assets, "static", lambda: tmp_path)
    monkeypatch.setattr(svg, "SECONDS", 60.0)
    engine = svg.Engine()
    yield engine
    engine.close()


def test_the_next_call_after_a_failure_succeeds(broken_page, tmp_path, monkeypatch):
    assert broken_page.call("well") == 7
    # Only of a process that has begun: beginning takes longer on a busy machine.
    with monkeypatch.context() as limited:
        limited.setattr(svg, "SECONDS", 0.5)
        with pytest.raises(RenderError, match=r"took more than 0\.5 seconds"):
            broken_page.call("forever")
    assert broken_page.call("well") == 7
    with pytest.raises(RenderError, match="no such thing"):
        broken_page.call("fail")
    (tmp_path / svg.ENTRY).write_text("export function well() { return 8; }\n")
    assert broken_page.call("well") == 8


def test_the_next_call_after_a_memory_error_succeeds(broken_page, monkeypatch):
    monkeypatch.setattr(svg, "MAX_MEMORY", 64 << 20)
    with pytest.raises(MemoryLimitError, match="drawing the graph took more than 64 MiB of memory"):
        broken_page.call("grow")
    assert broken_page.call("well") == 7


def test_rest_frees_unused_memory(broken_page):
    broken_page.rest()
    assert broken_page.call("well") == 7

    def memory():  # MiB of the process
        status = Path(f"/proc/{broken_page._process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 2**10

    before = memory()
    assert broken_page.call("litter") == 60
    assert memory() > before + 30
    with broken_page._turn:
        broken_page.rest()  # it draws
    assert memory() > before + 30
    broken_page.rest()
    assert broken_page.call("well") == 7
    assert memory() < before + 15


def test_the_end_of_the_process_is_an_error_and_the_next_call_succeeds(broken_page):
    assert broken_page.call("well") == 7
    process = broken_page._process
    timer = threading.Timer(0.2, process.kill)
    timer.start()
    with pytest.raises(MemoryLimitError, match="the process that draws the graph ended with status -9"):
        broken_page.call("forever")
    timer.join()
    assert broken_page.call("well") == 7
    broken_page._process.kill()
    broken_page._process.wait()
    with pytest.raises(MemoryLimitError):
        broken_page.call("well")
    assert broken_page.call("well") == 7
    broken_page.close()
    assert process.poll() is not None


FORKED = """
import os, chainrule
from chainrule.export.svg import to_svg
trace = chainrule.trace_spec(chainrule.ModelSpec.from_query("widths=5,4,1"))
drawn = to_svg(trace)
child = os.fork()
same = to_svg(trace) == drawn
if not child:
    os._exit(not same)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert same and to_svg(trace) == drawn
"""


@pytest.mark.long
def test_a_forked_process_draws_with_an_engine_of_its_own():
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


SHORT_OF_MEMORY = """
import resource, sys
import chainrule
trace = chainrule.trace_spec(chainrule.ModelSpec.from_query("widths=5,4,1"))
assert chainrule.save(trace, sys.argv[1], strict=True)
chainrule.export.svg._engine.close()
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
for more in (2**24, 2**27, 2**29):
    resource.setrlimit(resource.RLIMIT_AS, (size + more, resource.RLIM_INFINITY))
    print(chainrule.save(trace, sys.argv[1]))
print("trained")
"""


@pytest.mark.long
def test_a_picture_without_memory_does_not_end_a_training(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SHORT_OF_MEMORY, str(tmp_path / "net.svg")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "trained"), done.stderr
    assert (tmp_path / "net.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("threading.Thread.start", RuntimeError("can't start new thread")),
        ("subprocess.Popen", OSError(errno.ENOMEM, "Cannot allocate memory")),
    ],
)
def test_an_engine_that_cannot_start_is_a_memory_error(broken_page, monkeypatch, name, error):
    def fail(*_, **__):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(name, fail)
        said = getattr(error, "strerror", error)
        with pytest.raises(MemoryLimitError, match=re.escape(f"the host ran out of memory: {said}")):
            broken_page.call("well")
    assert broken_page.call("well") == 7


OLDER_THREAD = """
import queue, threading
from chainrule.export.svg import Engine

asked, answers = queue.Queue(), queue.Queue()

def answer():
    asked.get()
    answers.put(Engine().call("unknownGroups", DUMP, ["none"]))

older = threading.Thread(target=answer)
older.start()
assert Engine().call("unknownGroups", DUMP, ["none"]) == ["none"]
asked.put(None)
assert answers.get(timeout=60) == ["none"]
"""


@pytest.mark.long
def test_a_thread_that_is_older_than_the_engine_can_make_another():
    dump = dump_trace(trace_spec(ModelSpec())).decode()
    script = f"DUMP = {dump!r}\n{OLDER_THREAD}"
    done = subprocess.run([sys.executable, "-"], input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("drawing", ["forever", "parse"])  # V8 cancels the first at once, the second later
def test_the_next_call_after_a_stopped_one_succeeds(broken_page, drawing):
    assert broken_page.call("well") == 7
    stop = Stop()
    asking = threading.Timer(0.2, stop.ask, (StoppedError("disconnected"),))
    asking.start()
    with stoppable(stop), pytest.raises(StoppedError):
        broken_page.call(drawing)
    asking.join()
    broken_page.rest()
    assert broken_page.call("well") == 7
    # So can one that waits for another.
    with broken_page._turn, stoppable(stop), pytest.raises(StoppedError):
        broken_page.call("well")


def test_a_call_inside_an_event_loop_succeeds(broken_page):
    async def inside():
        return broken_page.call("well")

    assert asyncio.run(inside()) == 7


@pytest.mark.usefixtures("without_engine")
def test_the_error_without_the_extra_names_it():
    with pytest.raises(MissingExtraError, match=r"pip install 'chainrule\[render\]'"):
        to_svg(trace_spec(ModelSpec.from_query("widths=2,1&batch=1")))
