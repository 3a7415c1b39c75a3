"""The page's reader of graph dumps: it refuses what it cannot draw, at the place that `chainrule.load` names."""

import copy
import json

import pytest
from bad_dumps import BAD, EVIL_NAMES, NO_DUMPS, bad, with_evil_names

from chainrule.dump.opened import MAX_BYTES
from chainrule.trace.graph import ROLES

READ = """(m, texts) => texts.map((text) => {
    try {
        return { ops: m.readDump(text).ops.length };
    } catch (error) {
        return { name: error.name, where: error.where, message: error.message };
    }
})"""

# The page draws these all the same; `chainrule open` and `chainrule.load` refuse them.
DRAWN = {
    "a surplus field",
    "a surplus part",
    "a wrong type in a list",
    "attributes that are none",
    "an unknown role",
    "negative flops",
    "a loss that is no number",
    "a source without a line",
    "a snippet at line 0",
    "an unknown fault",
    "a fault with a surplus field",
    "a cycle of ops",
    "an op that reads its own output",
    "a module inside itself",
    "an op that is its own twin",
    "a gradient of itself",
    "a negative size",
    "two makers of a tensor",
    "a maker that is not named",
    "a maker that does not make it",
    "a reader that is not named",
    "a reader that does not read it",
    "a forward op with a twin",
    "what is nested too deeply",
    "a text in a column",
    "a row twice",
    "a negative count",
    "a count beyond uint32",
}


@pytest.fixture
def body(dump_of):
    return copy.deepcopy(dump_of("widths=5,4,3&batch=6"))


def read(module, *texts):
    return module("dump/dump.js", READ, list(texts))


def test_a_bad_dump_is_refused_with_its_place_or_drawn(module, body):
    texts, places = {}, {}
    for name in BAD:
        spoiled = copy.deepcopy(body)
        places[name] = bad(name, spoiled)
        texts[name] = json.dumps(spoiled)
    answers = dict(zip(BAD, read(module, *texts.values()), strict=True))
    assert {name for name, answer in answers.items() if "ops" in answer} == DRAWN
    for name in BAD.keys() - DRAWN:
        assert (answers[name]["name"], answers[name]["where"]) == ("DumpProblem", places[name]), name
        assert answers[name]["message"].startswith(places[name]), name
        if name.startswith("a dangling"):
            assert "999" in answers[name]["message"]
    assert '"chainrule.trace/1", but it is "chainrule.trace/2"' in answers["another schema"]["message"]
    wishes = {"level": "all", "toggled": [], "fold": True, "statistic": "std", "scheme": "light"}
    script = "(m, [texts, wishes]) => texts.map((text) => m.renderSvg(text, wishes).startsWith('<svg'))"
    assert all(module("takeaway/headless.js", script, [[texts[name] for name in DRAWN], wishes]))


def test_a_text_that_is_not_json_is_refused(module):
    answers = read(module, *NO_DUMPS, '{"spec":' + "[" * 200_000)
    assert all(answer["name"] == "DumpProblem" for answer in answers)
    assert answers[0]["message"].startswith("this is not JSON: ")


def test_good_dumps_are_read_whatever_their_names(module, body):
    odd = with_evil_names(copy.deepcopy(body))
    plain = copy.deepcopy(body)
    del plain["sources"]
    plain["loss"] = "NaN"
    roles = []
    for role in ROLES:
        body["tensors"][0]["role"] = role
        roles.append(json.dumps(body))
    texts = ["\ufeff" + json.dumps(plain), *roles]
    assert read(module, *texts) == [{"ops": len(body["ops"])}] * len(texts)
    # Sent as text: as an object it would lose a key of this name on the way.
    seen = module(
        "dump/dump.js",
        """async (m, text) => {
            const { pictureOfDump } = await import("/static/core/picture.js");
            const dump = m.readDump(text);
            const picture = pictureOfDump(dump, 1, "k");
            return { rows: [...picture.rows.keys()], sources: Object.keys(picture.topology.sources).sort(),
                     own: dump.sources["__proto__"], none: dump.sources["toString"] ?? null,
                     durations: picture.topology.op_us.length, polluted: "line" in {} };
        }""",
        json.dumps(odd),
    )
    assert seen["rows"][: len(EVIL_NAMES)] == odd["statistics"]["tensor"][: len(EVIL_NAMES)]
    assert seen["sources"] == sorted(EVIL_NAMES)
    assert seen["own"] == [{"line": 1, "text": "__proto__"}]
    assert (seen["none"], seen["durations"], seen["polluted"]) == (None, len(odd["ops"]), False)


def test_a_file_too_large_is_not_read(module):
    script = """(m, sizes) => [m.MAX_BYTES, ...sizes.map((bytes) => {
        try { m.checkSize(bytes); return "read"; } catch (error) { return error.message; }
    })]"""
    most, *answers = module("dump/dump.js", script, [0, MAX_BYTES, 200 * 2**20])
    assert most == MAX_BYTES
    assert answers == ["read", "read", "the file has 200 MiB; at most 128 MiB are opened"]
