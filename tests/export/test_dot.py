"""The Graphviz export: every node and edge once, nothing in a name breaks out of its quotes."""

import dataclasses
import html
import re

import pytest

from chainrule.export.dot import quote, to_dot
from chainrule.trace.graph import Failure, Module

QUOTED = r'"((?:[^"\\]|\\.)*)"'


def read_label(quoted):
    """A label as Graphviz shows it."""
    assert re.fullmatch(QUOTED, quoted)
    shown = re.sub(r"\\(.)", lambda match: {"n": "\n"}.get(match[1], match[1]), quoted[1:-1])
    return html.unescape(shown)


def statements(dot):
    """Node ids, edges and labels, read line by line."""
    nodes = re.findall(rf"^{QUOTED} \[shape", dot, re.MULTILINE)
    edges = []
    for left, right, attributes in re.findall(rf"^{QUOTED} -> {QUOTED}(.*);$", dot, re.MULTILINE):
        source, target = (right, left) if "dir=back" in attributes else (left, right)
        edges.append((source, target, "style=dashed" in attributes))
    return nodes, edges


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        'a "b"',
        "\\",
        '\\"',
        "ends in \\",
        "\\N is not the node's name",
        "two\nlines",
        "a & b",
        "&#27;",
        "σ_w² → ∂L/∂w",
        "",
    ],
)
def test_graphviz_reads_a_quoted_label(text):
    assert read_label(quote(text)) == text
    # Characters that no label can hold are replaced.
    assert quote("a\r\nb\rc\0d\x1be") == '"a\\nb\\nc\ufffdd\ufffde"'


@pytest.mark.smoke
def test_every_op_and_tensor_is_a_node_and_every_use_an_edge(small_trace):
    nodes, edges = statements(to_dot(small_trace))
    assert sorted(nodes) == sorted([op.id for op in small_trace.ops] + [each.id for each in small_trace.tensors])
    data = {(source, target) for source, target, dashed in edges if not dashed}
    expected = {(each, op.id) for op in small_trace.ops for each in op.inputs}
    expected |= {(op.id, each) for op in small_trace.ops for each in op.outputs}
    assert data == expected
    assert edges.count(("t3", "n2", False)) == 2  # used twice by one op


def test_the_backward_pass_is_laid_out_from_right_to_left(small_trace):
    written = set(re.findall(rf"^{QUOTED} -> {QUOTED}(.*);$", to_dot(small_trace), re.MULTILINE))
    assert ("t2", "n1", "") in written
    assert ("t6", "n3", " [dir=back]") in written
    assert ("n4", "t6", " [dir=back]") in written
    assert ("t0", "n4", " [constraint=false]") in written


def test_saved_tensors_lead_to_their_backward_op(small_trace):
    _, edges = statements(to_dot(small_trace))
    assert [edge[:2] for edge in edges if edge[2]] == [("t0", "n4"), ("t4", "n3")]


def test_labels_have_name_shape_and_statistics(small_trace):
    labels = [read_label(f'"{label}"') for label in re.findall(rf"label={QUOTED}", to_dot(small_trace))]
    assert "w1\nfloat32[100,50]" in labels
    assert "l1\nfloat32[200,50]\nmean 0.25, std 1.5\n3 of 10000 not finite" in labels
    assert 'a "quoted" \\N back\\slash\nand a/slash\nfloat32[200,50]' in labels
    assert "loss\nfloat32[]" in labels
    failed = to_dot(dataclasses.replace(small_trace, error=Failure("n1", "boom")))
    assert re.findall(rf"^{QUOTED} .*style=filled", failed, re.MULTILINE) == ["n1"]


def test_modules_are_nested_clusters(small_trace):
    depth, cluster_depth, owner = 0, {}, {}
    stack = []
    for line in to_dot(small_trace).splitlines():
        if match := re.match(rf"subgraph {QUOTED} {{", line):
            cluster_depth[match[1]] = depth
            stack.append(match[1])
            depth += 1
        elif line == "}":
            depth -= 1
            if stack:
                stack.pop()
        elif match := re.match(rf"{QUOTED} \[shape", line):
            owner[match[1]] = stack[-1]
    assert depth == -1  # the graph's own brace
    assert cluster_depth == {"cluster_m0": 0, "cluster_m1": 1, "cluster_m2": 2}
    assert owner == {
        **{op.id: f"cluster_{op.module}" for op in small_trace.ops},
        **{each.id: f"cluster_{each.module}" for each in small_trace.tensors},
    }


def test_a_thousand_modules_deep(small_trace):
    modules = [Module("m0", "", "Model", None)]
    modules += [Module(f"m{i}", "x" * i, "Block", f"m{i - 1}") for i in range(1, 1500)]
    deep = dataclasses.replace(small_trace, modules=tuple(modules))
    assert to_dot(deep).count("subgraph") == 1500
