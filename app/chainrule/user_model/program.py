"""A user's model as torch.compile runs it, so that a recording sees what is inside of its graphs.

    model ─▶ torch.compile ─▶ graphs ─▶ aot_eager: their ATen ops, one by one
                                     └▶ inductor: fused kernels, and the ATen ops between them

A compiled graph tells the recording of the running pass about each op and kernel, with the module and the line from
which it was compiled. The program must run once before it is recorded: nothing is compiled during a recording.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import logging
import operator
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor, fx, nn

from chainrule.trace import ops
from chainrule.trace.compiled import HERE, CompiledLevel, Origin, Step, Written
from chainrule.trace.sources import TORCH_FOLDER

_FRAME = re.compile(r'File "(.+)", line (\d+), in (.+)')
_HANDLE = re.compile(r"# \[Provenance debug handles\] (\S+:\d+)")
_KERNEL = re.compile(r"^(\w+) = async_compile\.cpp_pybinding\(", re.MULTILINE)
_PARAMETERS = re.compile(r"void +kernel\(([^)]*)\)")


class Program:
    """A model that torch.compile compiles with the backend "aot_eager" or "inductor", when it is called.

    Attributes:
        call: calls the model.
        level: of the recording to tell, or None.
        calls: of graphs, without a recording.
    """

    def __init__(self, model: nn.Module, backend: str) -> None:
        self.level: CompiledLevel | None = None
        self.calls = 0
        self._graphs = 0
        self._paths = {str(id(module)): path for path, module in model.named_modules()}
        self._compiles = _Inductor(self) if backend == "inductor" else _AotEager(self)

        def program(*args: Any, **kwargs: Any) -> Any:
            return model(*args, **kwargs)

        # torch compiles one code object a few times only.
        program.__code__ = program.__code__.replace()
        self._cells = program.__closure__ or ()
        # With a recording's hooks and modes the same graphs run.
        self.call: Callable[..., Any] = torch.compile(
            program, backend=self._compile, options={"guard_filter_fn": _guards}
        )

    @contextlib.contextmanager
    def compiling(self) -> Iterator[None]:
        """Inside, calls compile what has not been compiled yet."""
        from torch._functorch import config as of_autograd

        noise = logging.getLogger("torch")
        level = noise.level
        noise.setLevel(logging.CRITICAL)
        try:
            with (
                warnings.catch_warnings(action="ignore"),
                of_autograd.patch(enable_autograd_cache=False),
                self._compiles.settings(),
            ):
                yield
        finally:
            noise.setLevel(level)

    def close(self) -> None:
        """Let go of the model and of what was compiled: torch keeps both. Afterwards it cannot be called."""
        for cell in self._cells:
            cell.cell_contents = None
        torch._dynamo.reset()

    def runs(self) -> CompiledLevel | None:
        """A graph runs; returns the level to tell about it."""
        self.calls += self.level is None
        return self.level

    def _compile(self, graph: fx.GraphModule, examples: Sequence[Any]) -> Any:
        written = _Graph(self._graphs, graph, self._paths)
        self._graphs += 1
        return self._compiles.compile(written, graph, examples)


def _guards(entries: Sequence[Any]) -> list[bool]:
    return [
        entry.guard_type != "TORCH_FUNCTION_STATE" and not re.search(r"\._global_\w*(forward|backward)", entry.name)
        for entry in entries
    ]


class _Graph:
    """A graph of torch.compile as it was written: the path of the module and the name of each of its ops."""

    def __init__(self, number: int, graph: fx.GraphModule, paths: Mapping[str, str]) -> None:
        self.number = number
        self._paths = paths  # id of a module → its path
        self.written: Counter[Written] = Counter()
        self._ops: dict[str, tuple[Written, int]] = {}
        inner: set[str] = set()  # names of nodes in graphs of its ops, such as a checkpoint
        for node in _nodes(graph):
            name = node.target if isinstance(node.target, str) else ops.kind_of(node.target).name
            written = self.module_of(node), name
            self._ops[node.name] = written, self.written[written]
            self.written[written] += 1
            if node.graph is not graph.graph:
                inner.add(node.name)
        for each in inner:
            del self._ops[each]

    def module_of(self, node: fx.Node) -> str:
        """The path of the module to which a node belongs."""
        stack = node.meta.get("nn_module_stack") or node.meta.get("fwd_nn_module_stack") or {}
        for key, (place, _) in reversed(stack.items()):
            if place.startswith("L['self']"):  # a part of the module whose forward was compiled
                return HERE + str(place).removeprefix("L['self']").partition("@")[0]
            if (path := self._paths.get(key.partition("@")[0])) is not None:
                return path
        return HERE

    def results(self, graph: fx.GraphModule) -> Mapping[str, tuple[Written, int]]:
        """Node of a graph of ATen ops → the written op with the same output."""
        passes_on = (operator.getitem, torch.ops.aten.detach.default, torch.ops.aten.alias.default)
        nodes = (node for node in graph.graph.nodes if node.target not in passes_on and not _is_backward(node))
        last = {_written_as(node): node for node in nodes}
        found = {}
        for name, node in last.items():
            if name in self._ops:
                found[node.name] = self._ops[name]
                while _is_view(node) and _written_as(node.all_input_nodes[0]) == name:
                    node = node.all_input_nodes[0]
                    found[node.name] = self._ops[name]
        return found

    def origins(self, graph: fx.GraphModule) -> Mapping[str, Origin]:
        """The origin of each node of a graph of ATen ops."""
        results = self.results(graph)
        found = {}
        for node in graph.graph.nodes:
            written = self._ops.get(_written_as(node))
            given = {"graph": self.number} | ({} if written is None else {"written_as": written[0][1]})
            found[node.name] = Origin(
                self.module_of(node), _line_of(node), given=given, results=(results.get(node.name),)
            )
        return found


class _AotEager:
    """Runs the ATen ops of a graph one by one."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def settings(self) -> contextlib.AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def compile(self, written: _Graph, graph: fx.GraphModule, examples: Sequence[Any]) -> Any:
        from torch._dynamo.backends.common import aot_autograd
        from torch._functorch._aot_autograd.utils import make_boxed_compiler
        from torch._functorch.partitioners import min_cut_rematerialization_partition

        def compiler(is_backward: bool) -> Callable[..., Any]:
            return make_boxed_compiler(lambda inner, _: _Steps(self._program, written, inner, is_backward).run_for)

        compiled = aot_autograd(
            fw_compiler=compiler(False),
            bw_compiler=compiler(True),
            partition_fn=min_cut_rematerialization_partition,
            keep_inference_input_mutations=True,
        )
        return compiled(graph, examples)


class _Steps(fx.Interpreter):
    """A graph of ATen ops, run op by op."""

    def __init__(self, program: Program, written: _Graph, graph: fx.GraphModule, is_backward: bool) -> None:
        super().__init__(graph)
        self._program, self._written, self._is_backward = program, written, is_backward
        self._origins = written.origins(graph)
        self._now = Origin()

    def run_for(self, *args: Any) -> Any:
        """Run it, and tell the recording of the program, if there is one."""
        level = self._program.runs()
        try:
            if level is None:
                return self.boxed_run(list(args))
            return level.run(
                self.boxed_run, list(args), (), self._written.written, self._is_backward, lambda _: self._now
            )
        finally:
            self.env = {}  # it has kept the results

    def run_node(self, node: fx.Node) -> Any:
        self._now = self._origins[node.name]
        return super().run_node(node)


@dataclass(frozen=True, slots=True)
class _Call:
    """A call in the code that inductor has written: of a kernel, or of a torch function."""

    name: str
    origin: Origin


class _Inductor:
    """Runs what inductor makes of a graph."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._buffers: dict[str, str] = {}  # buffer → the node whose value it holds

    def settings(self) -> contextlib.AbstractContextManager[Any]:
        from torch._inductor import config

        wanted: dict[str, Any] = {
            "fallback_random": True,  # draws the numbers that the eager program draws
            "fx_graph_cache": False,
            "compile_threads": 1,
            "cpp_wrapper": False,
            "graph_partition": False,
            "trace.provenance_tracking_level": 1,
            "_pre_fusion_custom_pass": self._before_fusion,
        }
        if not hasattr(config, "graph_partition"):  # as torch 2.6 has none
            del wanted["graph_partition"]
        patched: contextlib.AbstractContextManager[Any] = config.patch(wanted)
        return patched

    def _before_fusion(self, nodes: list[Any]) -> list[Any]:
        for node in nodes:
            origin = getattr(node.node, "origin_node", None)
            if origin is not None:
                self._buffers |= {buffer.get_name(): origin.name for buffer in node.get_outputs()}
        return nodes

    def compile(self, written: _Graph, graph: fx.GraphModule, examples: Sequence[Any]) -> Any:
        from torch._inductor import debug
        from torch._inductor.compile_fx import compile_fx, compile_fx_inner

        def inner(of_aten: fx.GraphModule, given: Sequence[Any], **options: Any) -> Any:
            self._buffers = {}
            with debug.reset_provenance_globals():
                compiled: Any = compile_fx_inner(of_aten, given, **options)
                nodes = dict(debug._inductor_triton_kernel_to_post_grad_node_info)
            calls = list(_calls(compiled.source_code, nodes, of_aten, written, self._buffers))
            names = [node.name for node in of_aten.graph.nodes if node.op == "placeholder"]
            is_backward = bool(options.get("is_backward"))
            compiled.current_callable = _Kernels(self._program, written, calls, names, compiled, is_backward)
            return compiled

        return compile_fx(graph, examples, inner_compile=inner)


class _Kernels:
    """A graph as inductor runs it: its kernels tell a recording what they read and write."""

    def __init__(
        self,
        program: Program,
        written: _Graph,
        calls: Sequence[_Call],
        names: Sequence[str],
        compiled: Any,
        is_backward: bool,
    ) -> None:
        self._program, self._written, self._calls, self._is_backward = program, written, calls, is_backward
        self._names = names  # of the arguments
        self._at = 0  # the next call
        run = compiled.current_callable
        variables = dict(run.__globals__)
        for name, names in _kernels(compiled.source_code).items():
            variables[name] = self._watched(name, variables[name], names)
        # Another program may run the same code, so that stays as it is.
        self._run: Callable[[list[Any]], Any] = FunctionType(run.__code__, variables)

    def __call__(self, args: list[Any]) -> Any:
        level = self._program.runs()
        if level is None:
            return self._run(args)
        self._at = 0
        return level.run(self._run, args, self._names, self._written.written, self._is_backward, self._origin)

    def _origin(self, name: str) -> Origin:
        """The origin of an op, which is called next, or inside of the call before."""
        if self._at < len(self._calls) and name in self._calls[self._at].name:
            self._at += 1
            return self._calls[self._at - 1].origin
        before = self._calls[self._at - 1].origin if self._at else Origin(given={"graph": self._written.number})
        return dataclasses.replace(before, results=(), values=(), steps=())

    def _watched(self, name: str, run: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            level = self._program.level
            if level is None:
                return run(*args, **kwargs)
            tensors = [(to, each) for to, each in zip(names, args, strict=False) if isinstance(each, Tensor)]
            read = [each for to, each in tensors if to.startswith("in_")]
            written = [each for to, each in tensors if "out_ptr" in to]
            origin = self._origin(name)
            level.kernel(lambda: run(*args, **kwargs), read, written, origin)
            return None

        return call


def _nodes(graph: fx.GraphModule) -> Iterator[fx.Node]:
    """The ops of a graph, and those in the graphs of its ops, in order."""
    for node in graph.graph.nodes:
        parts = [getattr(graph, str(each.target)) for each in node.all_input_nodes if each.op == "get_attr"]
        graphs = [each for each in parts if isinstance(each, fx.GraphModule)]
        for each in graphs:
            yield from _nodes(each)
        if node.op in ("call_function", "call_method") and not graphs:
            yield node


def _kernels(code: str) -> Mapping[str, Sequence[str]]:
    """The kernels in code of inductor, with the names of their parameters: in_ptr0, out_ptr0, in_out_ptr0, sizes."""
    found = {}
    for each in _KERNEL.finditer(code):
        parameters = _PARAMETERS.search(code, each.end())
        assert parameters is not None, "a kernel has parameters"
        found[each[1]] = [parameter.split()[-1].lstrip("*&") for parameter in parameters[1].split(",")]
    return found


def _calls(
    code: str,
    computed: Mapping[str, Sequence[str]],
    graph: fx.GraphModule,
    written: _Graph,
    buffers: Mapping[str, str],
) -> Iterator[_Call]:
    """The calls in code of inductor, in order. `computed`: a call → the nodes that are computed in it."""
    kernels = _kernels(code)
    nodes, origins, results = list(graph.graph.nodes), written.origins(graph), written.results(graph)
    lines = [line.strip() for line in code.splitlines()]
    handle = None
    for line in lines:
        if named := _HANDLE.match(line):
            handle = named[1]
        elif handle is not None and isinstance(call := _expression(line), ast.Call):
            name = ast.unparse(call.func)
            of = [node for node in nodes if node.name in computed.get(handle, ())]
            made = [node.name for node in of[-1:]]
            origin = _joined(of, origins)
            if name in kernels:
                given = zip(kernels[name], map(ast.unparse, call.args), strict=False)
                made = [buffers.get(each, "") for parameter, each in given if "out_ptr" in parameter]
                origin = dataclasses.replace(origin, steps=_steps(of, origins, made))
            elif made:
                parts = {int(each.args[1]): each.name for each in of[-1].users if each.target is operator.getitem}
                made += [parts.get(place, "") for place in range(1, max(parts, default=0) + 1)]
            yield _Call(name, dataclasses.replace(origin, values=made, results=[results.get(each) for each in made]))
            handle = None


def _expression(line: str) -> ast.expr | None:
    """The expression in a line of code."""
    try:
        (statement,) = ast.parse(line).body
    except (SyntaxError, ValueError):
        return None
    return statement.value if isinstance(statement, ast.Expr | ast.Assign) else None


def _steps(nodes: Sequence[fx.Node], origins: Mapping[str, Origin], stored: Sequence[str]) -> Sequence[Step]:
    """The ops in a fused kernel: the nodes that were made of one op are one step. `stored`: the nodes it writes."""
    groups: dict[object, list[fx.Node]] = {}
    for node in nodes:
        groups.setdefault(_written_as(node) or (_aten_name(node), node.meta.get("seq_nr")), []).append(node)
    steps = []
    for group in groups.values():
        of = _joined(group, origins)
        reads = {each: None for node in group for each in node.all_input_nodes if each not in group}
        makes = []
        for node in group:
            value = node.meta.get("val")
            is_read = any(user in nodes and user not in group for user in node.users)
            if isinstance(value, Tensor) and (is_read or node.name in stored):
                makes.append((node.name, tuple(map(int, value.shape)), value.dtype))
        if reads:
            steps.append(Step(of.name, of.source, of.given, [_views(each) for each in reads], makes))
    return steps if len(steps) > 1 else ()


def _views(node: fx.Node) -> list[str]:
    """The name of a node, and those of its inputs, of which it may be a view."""
    names = [node.name]
    while _is_view(node) or (node.target is operator.getitem and node.all_input_nodes):
        node = node.all_input_nodes[0]
        names.append(node.name)
    return names


def _is_view(node: fx.Node) -> bool:
    return bool(node.all_input_nodes) and (
        getattr(node.target, "is_view", False)
        or node.target in (torch.ops.aten.reshape.default, torch.ops.aten._unsafe_view.default)
    )


def _joined(nodes: Sequence[fx.Node], origins: Mapping[str, Origin]) -> Origin:
    """The origin of several nodes: the innermost module that holds all of theirs, and the line of the last."""
    of = [origins[node.name] for node in nodes]
    if not of:
        return Origin(name="kernel")
    paths = [each.path.split(".") if each.path else [] for each in of]
    shared = [parts[0] for parts in takewhile(lambda each: len(set(each)) == 1, zip(*paths, strict=False))]
    path = ".".join(shared)
    source = next((each.source for each in reversed(of) if each.source is not None), None)
    written = (str(each.given.get("written_as", _aten_name(node))) for node, each in zip(nodes, of, strict=True))
    fuses = [each for each in dict.fromkeys(written) if each != "copy_"] or ["copy_"]
    name = "+".join(fuses) if len(fuses) < 3 else f"{fuses[0]}…{fuses[-1]}"
    given = dict(of[-1].given) if len(fuses) == 1 else {"graph": of[-1].given["graph"], "fuses": fuses}
    return Origin(path, source, name, given)


def _aten_name(node: fx.Node) -> str:
    op = node.meta.get("original_aten")
    return ops.kind_of(op).name.partition(".")[0] if op is not None else node.name


def _is_backward(node: fx.Node) -> bool:
    return node.meta.get("partitioner_tag") == "is_backward" or node.op == "placeholder"


def _written_as(node: fx.Node) -> str:
    """The node of the written graph from which a node was made."""
    made_of = node.meta.get("from_node") or ()
    return made_of[0].name if made_of else ""


def _line_of(node: fx.Node) -> tuple[CodeType, int] | None:
    """The user's innermost line that made a node, as a code object of its file."""
    found = [
        each for each in _FRAME.findall(node.meta.get("stack_trace") or "") if not each[0].startswith(TORCH_FOLDER)
    ]
    if not found:
        return None
    file, line, function = found[-1]
    return _code(file, function), int(line)


@cache
def _code(file: str, function: str) -> CodeType:
    return compile("", file, "exec").replace(co_name=function, co_qualname=function)
