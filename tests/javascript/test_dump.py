"""The page's own reader of graph dumps: it refuses what `chainrule.load` refuses, at the same place."""

import copy
import json

import pytest
from bad_dumps import BAD, EVIL_NAMES, NO_DUMPS, TOO_LARGE, bad, too_large, with_evil_names

from chainrule.dump.opened import MAX_BYTES
from chainrule.trace.graph import ROLES

READ = """(m, texts) => texts.map((text) => {
    try {
        const dump = m.readDump(text);
        return { ops: dump.ops.length };
    } catch (error) {
        return { name: error.name, where: error.where, message: error.message };
    }
})"""


@pytest.fixture
def body(dump_of):
    return copy.deepcopy(dump_of("widths=5,4,3&batch=6"))


def read(module, *texts):
    return module("dump/dump.js", READ, list(texts))


def test_every_bad_dump_is_refused_and_the_place_named(module, body):
    texts, places = [], []
    for name in BAD:
        spoiled = copy.deepcopy(body)
        places.append(bad(name, spoiled))
        texts.append(json.dumps(spoiled))
    for name, where, answer in zip(BAD, places, read(module, *texts), strict=True):
        assert (answer.get("name"), answer.get("where")) == ("DumpProblem", where), name
        assert answer["message"].startswith(where), name
        if name.startswith("a dangling"):
            assert "999" in answer["message"]
        if name == "a cycle of ops":
            assert answer["message"].endswith('a cycle: "n0" → "n1" → "n2" → "n0"')
        if name == "another schema":
            assert '"chainrule.trace/1"' in answer["message"]
            assert '"chainrule.trace/2"' in answer["message"]


def test_a_number_that_no_float_holds_is_refused_and_the_place_named(module, body):
    answers = read(module, *[too_large(where, copy.deepcopy(body)) for where in TOO_LARGE])
    assert [answer["where"] for answer in answers] == list(TOO_LARGE)
    assert all(answer["message"].endswith(": the number is too large") for answer in answers)


def test_what_is_no_json_is_told_with_its_place(module):
    answers = read(module, *NO_DUMPS, '{"spec":' + "[" * 200_000, '{\n  "schema": 1,\n  "ops" [\n]}')
    assert all(answer["name"] == "DumpProblem" for answer in answers)
    assert "line 1, column 1: a value should stand there, but the text ends" in answers[0]["message"]
    assert "line 1, column 32: a key in double quotes" in answers[3]["message"]
    assert "column 200009" in answers[-2]["message"]
    assert 'line 3, column 9: a colon should stand there, but there is "[' in answers[-1]["message"]


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


def test_a_cycle_through_all_of_a_large_graph_is_found(module):
    script = """(m) => {
        const ring = (length) => m.findCircle(length, (thing) => [(thing + length - 1) % length]).length;
        const chain = m.findCircle(75_000, (thing) => [thing - 1]);
        return [ring(75_000), ring(1), chain, m.findCircle(4, (thing) => [[], [3, 0], [1], [2, -1]][thing])];
    }"""
    assert module("dump/cycle.js", script) == [75_000, 1, [], [1, 2, 3]]
