"""Dumps with something wrong in each, for both readers: `chainrule.load` and the page's `readDump`.

Each entry says how to spoil the body of a good dump of several layers, and the place that has to be named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Body = dict[str, Any]

EVIL_NAMES = (
    "<img src=x onerror=alert(1)>",
    "__proto__",
    "constructor",
    "</script><script>alert(1)</script>",
    "a\u2028b",
)
"""Names that are harmless only where they are never taken for anything but text."""


def put(*place: Any, to: Any) -> Callable[[Body], None]:
    """Overwrites what stands at a place."""

    def spoil(body: Any) -> None:
        for key in place[:-1]:
            body = body[key]
        body[place[-1]] = to

    return spoil


def drop(*place: Any) -> Callable[[Body], None]:
    """Removes what stands at a place."""

    def spoil(body: Any) -> None:
        for key in place[:-1]:
            body = body[key]
        del body[place[-1]]

    return spoil


def again(part: str) -> Callable[[Body], None]:
    """Adds the first entry of a list once more."""
    return lambda body: body[part].append(body[part][0])


def made_by(body: Body, op: int) -> dict[str, Any]:
    return next(tensor for tensor in body["tensors"] if tensor["producer"] == body["ops"][op]["id"])


def circle(body: Body) -> None:
    """The first op reads from the third, which reads from the second, which reads from the first."""
    for maker, reader in ((2, 0), (0, 1), (1, 2)):
        body["ops"][reader]["inputs"].append(made_by(body, maker)["id"])


def fault(**fields: Any) -> Callable[[Body], None]:
    """Adds a fault that is good but for some fields."""
    good = {"kind": "dead", "message": "all dead", "module": ""}
    good |= dict.fromkeys(("source", "remedy", "op", "tensor"))
    return lambda body: body["faults"].append(good | fields)


def precision(**fields: Any) -> Callable[[Body], None]:
    """Adds errors of a precision that are good but for some fields."""
    good = {"name": "bfloat16", "of": "bfloat16", "against": "float32", "differing": {}}
    good |= {"tensor": ["t0"], "error": [0.01], "expected": [0.01]}
    return put("precision", to=good | fields)


def row_twice(body: Body) -> None:
    body["statistics"]["tensor"][1] = body["statistics"]["tensor"][0]


def maker_unnamed(body: Body) -> None:
    made = body["ops"][0]["outputs"][0]
    next(tensor for tensor in body["tensors"] if tensor["id"] == made)["producer"] = None


def two_makers(body: Body) -> None:
    body["ops"][1]["outputs"].append(body["ops"][0]["outputs"][0])


def reader_too_many(body: Body) -> None:
    body["tensors"][0]["consumers"].insert(0, body["ops"][-1]["id"])


def reader_unknown(body: Body) -> None:
    """The last op reads a tensor that does not name it."""
    stranger = next(tensor for tensor in body["tensors"] if body["ops"][-1]["id"] not in tensor["consumers"])
    body["ops"][-1]["inputs"].insert(0, stranger["id"])


def reader_of_many(body: Body) -> None:
    """The last op reads twenty more tensors, and another one names it too."""
    reader = body["ops"][-1]
    names = [f"t{number}" for number in range(2000, 2021)]
    body["tensors"] += [
        body["tensors"][0] | {"id": name, "producer": None, "consumers": [reader["id"]]} for name in names
    ]
    reader["inputs"] += names[1:]


def deep(body: Body) -> None:
    """Nests an op's attribute deeper than the readers go."""
    value: Any = 0
    for _ in range(150):
        value = [value]
    body["ops"][1]["attributes"] = {"deep": value}


BAD: dict[str, tuple[Callable[[Body], None], str]] = {
    "another schema": (put("schema", to="chainrule.trace/2"), "schema"),
    "no schema": (drop("schema"), "schema"),
    "a missing field": (drop("ops", 2, "name"), "ops[2].name"),
    "a missing part": (drop("tensors"), "tensors"),
    "a missing column": (drop("statistics", "std"), "statistics.std"),
    "a surplus field": (put("modules", 0, "colour", to="red"), "modules[0].colour"),
    "a surplus part": (put("surplus", to=1), "surplus"),
    "a list that is none": (put("ops", to={}), "ops"),
    "an op that is none": (put("ops", 1, to=None), "ops[1]"),
    "a wrong type": (put("tensors", 1, "shape", to="big"), "tensors[1].shape"),
    "a wrong type in a list": (put("tensors", 1, "shape", 0, to=1.5), "tensors[1].shape[0]"),
    "an input that is no text": (put("ops", 0, "inputs", 0, to=7), "ops[0].inputs[0]"),
    "attributes that are none": (put("ops", 0, "attributes", to=[]), "ops[0].attributes"),
    "a name that is no text": (put("tensors", 0, "name", to=None), "tensors[0].name"),
    "a wrong phase": (put("ops", 0, "phase", to="up"), "ops[0].phase"),
    "an unknown role": (put("tensors", 0, "role", to="villain"), "tensors[0].role"),
    "negative flops": (put("ops", 0, "flops", to=-1), "ops[0].flops"),
    "a loss that is no number": (put("loss", to="nan"), "loss"),
    "a source without a line": (
        put("ops", 0, "source", to={"file": "a", "text": "", "function": ""}),
        "ops[0].source.line",
    ),
    "a snippet at line 0": (put("sources", to={"a.py": [{"line": 0, "text": ""}]}), "sources.a.py[0].line"),
    "a duplicate op": (again("ops"), "ops[{ops}].id"),
    "a duplicate tensor": (again("tensors"), "tensors[{tensors}].id"),
    "a duplicate module": (again("modules"), "modules[{modules}].id"),
    "a dangling input": (put("ops", 0, "inputs", 0, to="t999"), "ops[0].inputs[0]"),
    "a dangling output": (put("ops", 0, "outputs", 0, to="t999"), "ops[0].outputs[0]"),
    "a dangling twin": (put("ops", 0, "twin", to="n999"), "ops[0].twin"),
    "a dangling module": (put("ops", 0, "module", to="m999"), "ops[0].module"),
    "a dangling parent": (put("modules", 1, "parent", to="m999"), "modules[1].parent"),
    "a dangling producer": (put("tensors", 0, "producer", to="n999"), "tensors[0].producer"),
    "a dangling consumer": (put("tensors", 0, "consumers", 0, to="n999"), "tensors[0].consumers[0]"),
    "a dangling home": (put("tensors", 0, "module", to="m999"), "tensors[0].module"),
    "a dangling origin": (put("tensors", 0, "gradient_of", to="t999"), "tensors[0].gradient_of"),
    "a dangling saved tensor": (put("saved", 0, "tensor", to="t999"), "saved[0].tensor"),
    "a dangling saved op": (put("saved", 0, "op", to="n999"), "saved[0].op"),
    "a dangling layer": (put("layers", 0, "weight", to="t999"), "layers[0].weight"),
    "a dangling row": (put("statistics", "tensor", 0, to="t999"), "statistics.tensor[0]"),
    "a dangling failure": (put("error", to={"op": "n999", "message": "?"}), "error.op"),
    "a dangling op at fault": (fault(op="n999"), "faults[0].op"),
    "a dangling tensor at fault": (fault(tensor="t999"), "faults[0].tensor"),
    "an unknown fault": (fault(kind="sin"), "faults[0].kind"),
    "a fault without words": (fault(message=None), "faults[0].message"),
    "a fault with a surplus field": (fault(colour="red"), "faults[0].colour"),
    "faults that are none": (put("faults", to={}), "faults"),
    "an error of no tensor": (precision(tensor=["t999"]), "precision.tensor[0]"),
    "an error without a prediction": (precision(expected=[]), "precision.expected"),
    "a negative error": (precision(error=[-1.0]), "precision.error[0]"),
    "a difference of no tensor": (precision(differing={"t999": [1, 2]}), "precision.differing.t999"),
    "a cycle of ops": (circle, "ops[0]"),
    "an op that reads its own output": (lambda body: body["ops"][1]["inputs"].append(made_by(body, 1)["id"]), "ops[1]"),
    "a module inside itself": (put("modules", 0, "parent", to="m1"), "modules[0]"),
    "an op that is its own twin": (put("ops", 0, "twin", to="n0"), "ops[0]"),
    "a gradient of itself": (put("tensors", 0, "gradient_of", to="t0"), "tensors[0]"),
    "a negative size": (put("tensors", 1, "shape", 0, to=-3), "tensors[1].shape[0]"),
    "two makers of a tensor": (two_makers, "ops[1].outputs[{outputs}]"),
    "a maker that is not named": (maker_unnamed, "ops[0].outputs[0]"),
    "a maker that does not make it": (
        lambda body: body["tensors"].append(body["tensors"][0] | {"id": "t998", "producer": "n0", "consumers": []}),
        "tensors[{tensors}].producer",
    ),
    "a reader that is not named": (reader_unknown, "ops[{last}].inputs[0]"),
    "a reader of many that does not read it": (reader_of_many, "tensors[{tensors}].consumers[0]"),
    "a reader that does not read it": (reader_too_many, "tensors[0].consumers[0]"),
    "a forward op with a twin": (put("ops", 1, "twin", to="n0"), "ops[1].twin"),
    "what is nested too deeply": (deep, "ops[1].attributes"),
    "a short column": (drop("statistics", "mean", 0), "statistics.mean"),
    "a text in a column": (put("statistics", "n", 0, to="many"), "statistics.n[0]"),
    "a short histogram": (drop("statistics", "histogram", "counts", 0), "statistics.histogram.counts"),
    "too few bins": (drop("statistics", "histogram", "counts", 0, 0), "statistics.histogram.counts[0]"),
    "other bins": (put("statistics", "histogram", "bins", to=32), "statistics.histogram.bins"),
    "a long low": (lambda body: body["statistics"]["histogram"]["low"].append(0.0), "statistics.histogram.low"),
    "a row twice": (row_twice, "statistics.tensor[1]"),
    "a negative count": (put("statistics", "histogram", "counts", 0, 0, to=-1), "statistics.histogram.counts[0][0]"),
    "values of no tensor": (put("values", "t999", to=[1.0]), "values.t999"),
    "too many values": (put("values", "t0", to=[1.0] * 17), "values.t0"),
    "values that are no numbers": (put("values", "t3", 2, to="1.0"), "values.t3[2]"),
    "a count beyond uint32": (
        put("statistics", "histogram", "counts", 0, 0, to=2**40),
        "statistics.histogram.counts[0][0]",
    ),
}
"""Name → how to spoil a dump, and the path of the place; {ops} stands for the number of ops."""


def bad(name: str, body: Body) -> str:
    """Spoils a dump's body in place; gives the path that has to be named."""
    spoil, where = BAD[name]
    counts = {part: len(body[part]) for part in ("ops", "tensors", "modules")}
    where = where.format(**counts, last=len(body["ops"]) - 1, outputs=len(body["ops"][1]["outputs"]))
    spoil(body)
    return where


NO_DUMPS = [
    "",
    "nonsense",
    "[1, 2",
    '{"schema": "chainrule.trace/1",}',
    "[]",
    "null",
    "42",
    '"text"',
    "{}",
    '{"loss": NaN}',
    "[-Infinity]",
]
"""Texts that are no dump at all."""


def with_evil_names(body: Body) -> Body:
    """A good dump whose every name is hostile: ids, names, types, files, texts, keys."""
    for position, tensor in enumerate(body["tensors"]):
        tensor["name"] = EVIL_NAMES[position % len(EVIL_NAMES)]
    for position, op in enumerate(body["ops"]):
        op["name"] = EVIL_NAMES[position % len(EVIL_NAMES)]
        op["attributes"] = {name: name for name in EVIL_NAMES}
        if op["source"] is not None:
            op["source"] |= {"file": EVIL_NAMES[0], "text": EVIL_NAMES[0]}
    for position, module in enumerate(body["modules"]):
        module["type"] = EVIL_NAMES[position % len(EVIL_NAMES)]
        if position:
            module["path"] = EVIL_NAMES[position % len(EVIL_NAMES)]
    body["sources"] = {name: [{"line": 1, "text": name}] for name in EVIL_NAMES}
    body["environment"] = {name: name for name in EVIL_NAMES}
    # Ids too: `__proto__` as the id of the first tensor.
    renamed = dict(zip([tensor["id"] for tensor in body["tensors"]], EVIL_NAMES, strict=False))

    def rename(ids: list[str]) -> list[str]:
        return [renamed.get(each, each) for each in ids]

    for tensor in body["tensors"]:
        tensor["id"], tensor["gradient_of"] = rename([tensor["id"], tensor["gradient_of"]])
    for op in body["ops"]:
        op["inputs"], op["outputs"] = rename(op["inputs"]), rename(op["outputs"])
    for saved in body["saved"]:
        (saved["tensor"],) = rename([saved["tensor"]])
    body["faults"] = [
        {"kind": "dead", "message": name, "module": name, "op": None, "tensor": name, "source": None, "remedy": name}
        | {"level": "note", "layers": [1], "rule": name}
        for name in renamed.values()
    ]
    for layer in body["layers"]:
        layer |= {key: renamed.get(value, value) for key, value in layer.items() if key not in ("index", "name")}
    body["statistics"]["tensor"] = rename(body["statistics"]["tensor"])
    body["values"] = dict(zip(rename(list(body["values"])), body["values"].values(), strict=True))
    return body
