"""The layers of any recording, in order of execution.

A row is a call of one of these:

- a module that reads parameters while no module inside of it does: nn.Linear, also an LSTM or a MultiheadAttention;
- a custom autograd.Function;
- an op that weighs with a parameter outside of such modules: in plain functions, or a product with tied weights.

A module that is called twice has two rows; ops that a checkpoint recomputes have none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from torch import nn

from chainrule.trace import ops as kinds
from chainrule.trace.graph import Layer, Trace
from chainrule.trace.records import Records

ELEMENTWISE_ACTIVATIONS = kinds.ACTIVATIONS - {"softmax", "log_softmax"}
"""Activations of one value at a time. A softmax is none: the layer before it puts out logits."""

_BENT = ELEMENTWISE_ACTIVATIONS | frozenset(
    "erf exp expm1 abs pow square reciprocal where clamp maximum minimum sin cos atan logsigmoid softsign".split()
)
_ELEMENTWISE = _BENT | frozenset(
    "add sub rsub mul div rdiv neg add_ sub_ mul_ div_ sqrt rsqrt log log1p to float type_as clone".split()
)
_PARAMETRIZATIONS = "parametrizations"
_TRANSPARENT = frozenset(("CheckpointFunction", "_NoopSaveInputs", "RegisterPostBackwardFunction"))
_NOT_PUT_OUT = frozenset(("buffer", "parameter", "saved"))


def find_layers(trace: Trace, functions: Collection[str] = ()) -> tuple[Layer, ...]:
    """The layers of a recorded trace, first to last. `functions`: the paths of its modules that are custom Functions.

    preactivation: the output of the call, or the input of the activation that makes this output inside of the call.
    activation: its output under the activation (an op, or a module that computes nothing else) that alone reads it.
        Without an activation it is the preactivation.
    gradient: of the activation.
    weight: the largest parameter of two or more dimensions that the call reads. bias: its bias.
    name: the module's path, with a count after its first call.
    """
    return _Search(trace, functions).layers()


@dataclass(slots=True)
class _Call:
    """One call: its path, its ops by row, and the parameters it reads, in order."""

    path: str
    name: str
    is_function: bool = False
    ops: list[int] = field(default_factory=list)
    parameters: dict[str, None] = field(default_factory=dict)
    first_read: int = -1


class _Search:
    """Finds the layers of one trace; holds everything that is looked up more than once."""

    def __init__(self, trace: Trace, functions: Collection[str]) -> None:
        # The fields of a recording, without making its objects.
        assert isinstance(trace.ops, Records)
        assert isinstance(trace.tensors, Records)
        self.ops, self.tensors = trace.ops.fields, trace.tensors.fields
        self.op_row = {op["id"]: row for row, op in enumerate(self.ops)}
        self.tensor = {tensor["id"]: tensor for tensor in self.tensors}
        self.forward = [row for row, op in enumerate(self.ops) if op["phase"] == "forward"]
        self.is_forward = [op["phase"] == "forward" for op in self.ops]
        self.maker = {output: row for row in self.forward for output in self.ops[row]["outputs"]}
        self.path = {module.id: module.path for module in trace.modules}
        self.type = {module.path: module.type for module in trace.modules}
        self.functions = {path for path in functions if self.type.get(path) not in _TRANSPARENT}
        self.reads = {row: self._parameters(row) for row in self.forward}
        self.place = {row: self._place(row) for row in self.forward}
        paths = {self.place[row] for row in self.forward if self.reads[row]}
        paths = {path for path in paths if self.functions.isdisjoint(_around(path))}
        # The paths that contain no other and lie in no custom Function.
        self.leaves = paths - {around for path in paths for around in _around(path) if around != path}
        if "" in self.leaves and not hasattr(nn, self.type.get("", "")) and any(map(self._weighs, self.forward)):
            # Code with several layers in one place: op by op.
            self.leaves.remove("")
        units = {path: self._unit(path) for path in {*self.place.values()}}
        # The leaf or custom Function at each op's path or around it, if any, and whether it is a Function.
        self.unit = {row: units[path] for row, path in self.place.items()}

    def _parameters(self, row: int) -> list[str]:
        return [name for name in self.ops[row]["inputs"] if self.tensor[name]["role"] == "parameter"]

    def _place(self, row: int) -> str:
        """The path of an op's module; a parametrization is part of the module whose weight it computes."""
        path = self.path[self.ops[row]["module"]]
        if _PARAMETRIZATIONS in path:
            parts = path.split(".")
            if _PARAMETRIZATIONS in parts:
                return ".".join(parts[: parts.index(_PARAMETRIZATIONS)])
        return path

    def _unit(self, path: str) -> tuple[str, bool] | None:
        for around in _around(path):
            if around in self.functions or around in self.leaves:
                return around, around in self.functions
        return None

    def layers(self) -> tuple[Layer, ...]:
        """All rows."""
        gradients = self._gradients()
        outputs = [(call, self._output(call)) for call in self._calls()]
        rows = [(self.maker[output], call, output) for call, output in outputs if output is not None]
        rows.sort(key=lambda found: found[0])
        found: list[Layer] = []
        named: dict[str, int] = {}
        for _, call, output in _without_wrappers(rows):
            preactivation, activation = self._around_activation(call, output)
            weight, bias = self._weight_and_bias(call)
            count = named[call.name] = named.get(call.name, 0) + 1
            found.append(
                Layer(
                    index=len(found) + 1,
                    name=call.name if count == 1 else f"{call.name} ({count})",
                    preactivation=preactivation,
                    activation=activation,
                    gradient=gradients.get(activation),
                    weight=weight,
                    weight_gradient=None if weight is None else gradients.get(weight),
                    bias=bias,
                    bias_gradient=None if bias is None else gradients.get(bias),
                )
            )
        return tuple(found)

    def _calls(self) -> list[_Call]:
        """Every call, its ops in order: a run of ops of one unit, unless the same module is called twice in a row."""
        calls: list[_Call] = []
        open_call: _Call | None = None
        of_functions: dict[str, _Call] = {}
        before = -2
        for row in self.forward:
            unit = self.unit[row]
            if row != before + 1:
                open_call = None
            before = row
            if unit is None:
                open_call = None
                weight = self._weighs(row)
                if weight is not None:
                    calls.append(self._product(row, weight))
                continue
            path, is_function = unit
            if is_function:
                call = of_functions.get(path)
                if call is None:
                    call = of_functions[path] = _Call(path, path, is_function=True)
                    calls.append(call)
            else:
                if open_call is None or open_call.path != path or self._begins_again(open_call, row):
                    open_call = _Call(path, path or self.type.get("", "model"))
                    calls.append(open_call)
                call = open_call
            call.ops.append(row)
            if self.reads[row]:
                call.parameters.update(dict.fromkeys(self.reads[row]))
                if call.first_read < 0:
                    call.first_read = row
        return calls

    def _begins_again(self, call: _Call, row: int) -> bool:
        """Whether an op begins another call of the same module.

        torch's modules have no loops: the same op on the same parameter is another call.
        """
        first = call.first_read
        return (
            first >= 0
            and hasattr(nn, self.type.get(call.path, ""))
            and self.ops[row]["name"] == self.ops[first]["name"]
            and self.reads[row][:1] == self.reads[first][:1]
        )

    def _weighs(self, row: int) -> str | None:
        """The weight of an op: its parameter of two or more dimensions, or the base of such a view."""
        op = self.ops[row]
        if op["name"] not in kinds.LINEAR:
            return None
        for name in op["inputs"]:
            maker = self.maker.get(name)
            while maker is not None and self.ops[maker]["name"] in kinds.VIEWS and self.ops[maker]["inputs"]:
                name = self.ops[maker]["inputs"][0]
                maker = self.maker.get(name)
            if self.tensor[name]["role"] == "parameter" and len(self.tensor[name]["shape"]) >= 2:
                return str(name)
        return None

    def _product(self, row: int, weight: str) -> _Call:
        """A call of an op that weighs, named after the weight, with the addition of a bias."""
        call = _Call(self.place[row], self.tensor[weight]["name"], ops=[row])
        call.parameters.update(dict.fromkeys([weight, *self.reads[row]]))
        readers = self._readers(self.ops[row]["outputs"][0]) if self.ops[row]["outputs"] else ()
        if len(readers) == 1 and self.ops[readers[0]]["name"] in ("add", "add_") and self.reads[readers[0]]:
            call.ops.append(readers[0])
            call.parameters.update(dict.fromkeys(self.reads[readers[0]]))
        return call

    def _readers(self, tensor: str) -> list[int]:
        """The forward ops that read a tensor."""
        return [row for consumer in self.tensor[tensor]["consumers"] if self.is_forward[row := self.op_row[consumer]]]

    def _output(self, call: _Call) -> str | None:
        """The output of a call: the first output of its last op that others read, else its last output."""
        own = set(call.ops)
        last: str | None = None
        for row in reversed(call.ops):
            for output in self.ops[row]["outputs"]:
                tensor = self.tensor[output]
                if tensor["role"] in _NOT_PUT_OUT or "float" not in tensor["dtype"]:
                    continue
                if any(reader not in own for reader in self._readers(output)):
                    return str(output)
                if last is None:
                    last = str(output)
        return last

    def _around_activation(self, call: _Call, output: str) -> tuple[str, str]:
        """Preactivation and activation of a call with this output."""
        maker = self.ops[self.maker[output]]
        own = set(call.ops)
        if maker["name"] in ELEMENTWISE_ACTIVATIONS and len(own) > 1 and maker["inputs"]:
            inside = maker["inputs"][0]
            if self.maker.get(inside) in own and self.tensor[inside]["role"] not in _NOT_PUT_OUT:
                return inside, output
        readers = self._readers(output)
        if len(readers) == 1 and self.ops[readers[0]]["name"] in ELEMENTWISE_ACTIVATIONS:
            reader = self.ops[readers[0]]
            if self.unit[readers[0]] is None and reader["outputs"]:
                return output, reader["outputs"][0]
        return output, self._composed_activation(output, readers) or output

    def _composed_activation(self, output: str, readers: Sequence[int]) -> str | None:
        """The output of the module that alone reads a tensor and computes an activation of it by elementwise ops."""
        modules = {self.ops[row]["module"] for row in readers}
        if len(modules) != 1:
            return None
        (module,) = modules
        inside = {output}
        bends = False
        last: str | None = None
        row = readers[0]
        if self.unit[row] is not None:
            return None
        while row < len(self.ops) and self.ops[row]["module"] == module and self.is_forward[row]:
            op = self.ops[row]
            if op["name"] not in _ELEMENTWISE or not op["outputs"]:
                return None
            if any(name not in inside and prod(self.tensor[name]["shape"]) > 1 for name in op["inputs"]):
                return None
            bends = bends or op["name"] in _BENT
            inside.update(op["outputs"])
            last = op["outputs"][0]
            row += 1
        if last is None or not bends or readers[-1] >= row:
            return None
        return last if self.tensor[last]["shape"] == self.tensor[output]["shape"] else None

    def _weight_and_bias(self, call: _Call) -> tuple[str | None, str | None]:
        parameters = [self.tensor[name] for name in call.parameters]
        weights = [each for each in parameters if len(each["shape"]) >= 2]
        weight = max(weights, key=lambda each: prod(each["shape"])) if weights else None
        others = [each for each in parameters if len(each["shape"]) <= 1]
        named = [each for each in others if "bias" in each["name"].rpartition(".")[2]]
        bias = named[0] if named else others[0] if others and weights else None
        return (None if weight is None else weight["id"]), (None if bias is None else bias["id"])

    def _gradients(self) -> Mapping[str, str]:
        """Tensor → its first gradient, else that of the tensor that a checkpoint computed again."""
        gradients: dict[str, str] = {}
        for tensor in self.tensors:
            of = tensor["gradient_of"]
            if of is not None:
                gradients.setdefault(of, tensor["id"])
        for op in self.ops:
            if op["twin"] is not None and op["attributes"].get("recomputed"):
                original = self.ops[self.op_row[op["twin"]]]
                for first, again in zip(original["outputs"], op["outputs"], strict=False):
                    if again in gradients:
                        gradients.setdefault(first, gradients[again])
        return gradients


def _around(path: str) -> Iterator[str]:
    """A path and its ancestors, the root last."""
    while path:
        yield path
        path = path.rpartition(".")[0]
    yield ""


def _without_wrappers(rows: Sequence[tuple[int, _Call, str]]) -> list[tuple[int, _Call, str]]:
    """Keep one call per output: the custom Function, with the parameters of the module around it."""
    by_output: dict[str, tuple[int, _Call, str]] = {}
    for row in rows:
        known = by_output.get(row[2])
        if known is None:
            by_output[row[2]] = row
            continue
        kept, other = (row, known) if row[1].is_function else (known, row)
        kept[1].parameters.update(other[1].parameters)
        by_output[row[2]] = kept
    return list(by_output.values())
