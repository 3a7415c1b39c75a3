"""Faults of a pass: each one in a model made to have it, and none in healthy models."""

import contextlib
import dataclasses
import json
from itertools import pairwise

import pytest
import torch
from lambda_modules import Parts
from reference_models import MODELS
from torch import nn
from torch.nn import functional as F  # noqa: N812 (its usual name)

import chainrule
from chainrule.diagnose.faults import MAX_OF_A_KIND, Evidence, find_faults, with_faults
from chainrule.diagnose.profile import theory
from chainrule.dump.wire import dump_trace, load, theory_message
from chainrule.run import trace_spec
from chainrule.spec import ModelSpec
from chainrule.trace import record

WATCHED = pytest.mark.parametrize("watched", [True, False], ids=["watched", "trace alone"])


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def evidence_of(model):
    """The evidence about a model's parameters before a pass."""
    evidence = Evidence()
    evidence.begins(model)
    evidence.ended()
    return evidence


def run(model, *inputs, loss=None, watched=True):
    """The trace of a pass, as far as it goes, and its faults."""
    evidence = evidence_of(model)
    recording = record(model, on_tensor=evidence.watch if watched else None)
    with contextlib.suppress(RuntimeError), recording:
        out = model(*inputs)
        (out if loss is None else loss(out)).sum().backward()
    return recording.trace, find_faults(recording.trace, evidence)


def faults_of(model, *inputs, **options):
    return run(model, *inputs, **options)[1]


def only(faults, kind):
    return [fault for fault in faults if fault.kind == kind]


def net(*sizes):
    layers = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


@pytest.mark.smoke
@pytest.mark.parametrize("name", MODELS)
def test_a_healthy_model_has_no_faults(name):
    assert find_faults(MODELS[name](), Evidence()) == ()


@pytest.mark.parametrize("query", ["preset=deep-kaiming", "widths=100x51&activation=tanh&init=lecun_normal", ""])
def test_a_healthy_net_of_the_chapter_has_no_faults(query):
    assert find_faults(trace_spec(ModelSpec.from_query(query)), Evidence()) == ()


class Two(nn.Module):
    """An encoder and a head, with the function `between` applied between them."""

    def __init__(self, between=lambda hidden: hidden):
        super().__init__()
        self.encoder = net(4, 6, 6)
        self.head = nn.Linear(6, 2)
        self.between = between

    def forward(self, x):
        return self.head(self.between(self.encoder(x)))


X = torch.randn(16, 4)


def test_an_unused_layer_is_one_and_needs_no_place_in_the_graph():
    model = Two()
    model.spare = net(3, 3, 3)
    (fault,) = faults_of(model, X)
    assert (fault.kind, fault.module, fault.op, fault.source) == ("no_gradient", "spare", None, None)
    assert fault.message == "spare (4 parameters): no gradient, unused: no op of this pass reads it"
    assert "branch" in fault.remedy


def without_gradients(inside):
    def between(hidden):
        with torch.no_grad():
            return inside(hidden)

    return between


def cut_thrice(hidden):
    return hidden.argmax(1, keepdim=True) + hidden.detach() + hidden.detach().sin()


OFF = "gradients are off from {} on, as under torch.no_grad(): encoder (4 parameters) get no gradient"


@WATCHED
@pytest.mark.parametrize(
    ("between", "op", "message"),
    [
        (torch.Tensor.detach, "detach", "detach cuts the graph: encoder (4 parameters) get no gradient"),
        (lambda hidden: hidden.data, "data", "data cuts the graph: encoder (4 parameters) get no gradient"),
        (cut_thrice, "detach", "detach cuts the graph: "),
        # The first op of the block: what comes before it still had a graph.
        (without_gradients(lambda hidden: torch.tanh(hidden) * 2), "tanh", OFF.format("tanh")),
        (without_gradients(lambda hidden: hidden + 1), "add", OFF.format("add")),  # which saves nothing
    ],
    ids=["detach", "data", "the first of three", "no_grad", "no_grad, nothing saved"],
)
def test_a_cut_is_named_with_its_place(between, op, message, watched):
    trace, (cut,) = run(Two(between), X, watched=watched or op == "add")
    first = next(each for each in trace.ops if each.name == op)
    assert (cut.kind, cut.op, cut.source) == ("detach", first.id, first.source)
    assert cut.source.file == "test_faults.py"
    assert cut.message.startswith(message)


@WATCHED
def test_an_encoder_that_runs_without_gradients_is_cut_off_at_its_first_layer(watched):
    class Frozen(Two):
        def forward(self, x):
            with torch.no_grad():
                hidden = self.encoder(x)
            return self.head(hidden)

    trace, (cut,) = run(Frozen(), X, watched=watched)
    assert trace.ops[int(cut.op[1:])].name == "linear"
    assert cut.module == "encoder.0"
    assert cut.message == OFF.format("linear")


@WATCHED
@pytest.mark.parametrize(
    ("between", "op", "values"),
    [
        (lambda hidden: F.one_hot(hidden.argmax(1), 6).float(), "argmax", "integers"),
        (lambda hidden: (hidden > 0).float(), "gt", "truth values"),
    ],
)
def test_an_op_of_integers_or_truth_values_has_no_derivative(between, op, values, watched):
    trace, (fault,) = run(Two(between), X, watched=watched)
    assert trace.ops[int(fault.op[1:])].name == op
    expected = f"encoder (4 parameters): no gradient, no path: {op} returns {values}, which have no derivative"
    assert fault.message == expected


@WATCHED
def test_a_parameter_whose_shape_alone_is_read_is_unused(watched):
    def forward(self, x):
        return self.two(x) + torch.zeros_like(self.like) + self.like.new_zeros(2)

    (fault,) = faults_of(Parts(forward, two=Two(), like=nn.Parameter(torch.ones(16, 2))), X, watched=watched)
    assert fault.message.startswith("like: no gradient, unused")


@WATCHED
def test_a_layer_whose_bias_alone_learns_has_a_graph(watched):
    model = Two(torch.Tensor.detach)
    model.encoder[0].weight.requires_grad_(False)
    cut, frozen = faults_of(model, X, watched=watched)
    assert cut.message == "detach cuts the graph: encoder.0.bias, encoder.2 (3 parameters) get no gradient through it"
    assert frozen.module == "encoder.0"


@WATCHED
def test_a_branch_that_does_not_reach_the_loss_has_no_path(watched):
    def forward(self, x):
        hidden = self.encoder(x)
        self.auxiliary(hidden).softmax(1)
        return self.head(hidden)

    model = Parts(forward, encoder=net(4, 6, 6), auxiliary=nn.Linear(6, 3), head=nn.Linear(6, 2))
    (fault,) = faults_of(model, X, watched=watched)
    assert fault.module == "auxiliary"
    assert "no path: the loss does not depend on it (the last op is softmax)" in fault.message
    assert fault.source.text == "self.auxiliary(hidden).softmax(1)"


@pytest.mark.parametrize(
    ("between", "end"),
    [
        (lambda hidden: torch.from_numpy(hidden.detach().numpy() * 2), "detach cuts the graph"),
        (lambda hidden: torch.from_numpy((hidden.detach() * 2).numpy()), "detach cuts the graph"),
        (lambda hidden: torch.full((16, 6), hidden.mean().item()), "the last op is mean"),
    ],
    ids=["numpy", "numpy later", "item"],
)
def test_layers_whose_values_leave_the_graph_are_one_fault_at_the_end(between, end):
    with chainrule.record(model := Two(between)) as recording:
        model(X).sum().backward()
    (fault,) = recording.trace.faults
    expected = f"encoder (4 parameters): no gradient, no path: the loss does not depend on it ({end})"
    assert fault.message == expected
    assert end.split()[0 if end.startswith("detach") else -1] == recording.trace.ops[int(fault.op[1:])].name


def test_a_frozen_module_comes_last_with_a_note_on_its_running_statistics():
    backbone = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU())
    parts = {"backbone": backbone, "head": nn.Linear(6, 2), "spare": nn.Linear(1, 1)}
    model = Parts(lambda self, x: self.head(self.backbone(x)), **parts)
    model.backbone.requires_grad_(False)
    unused, frozen = faults_of(model, X)
    assert unused.module == "spare"
    assert frozen.module == "backbone"
    assert frozen.message == "backbone (4 parameters): no gradient, requires_grad=False"
    assert "running statistics of backbone.1 still change" in frozen.remedy
    model.backbone.eval()
    assert "running statistics" not in faults_of(model, X)[-1].remedy


@WATCHED
def test_tied_weights_have_one_gradient_and_no_fault(watched):
    parts = {"unembed": nn.Linear(4, 9, bias=False), "embed": nn.Embedding(9, 4)}
    model = Parts(lambda self, x: self.embed(x) ** 2, **parts)
    model.embed.weight = model.unembed.weight
    (known,) = evidence_of(model).parameters
    assert (known.path, known.aliases) == ("unembed.weight", ("embed.weight",))
    assert faults_of(model, torch.tensor([1, 2]), watched=watched) == ()


def test_a_layer_that_learns_by_another_name_is_not_lost():
    parts = {"encoder": nn.Linear(4, 4), "decoder": nn.Linear(4, 4)}
    model = Parts(lambda self, x: F.linear(self.encoder(x), self.decoder.weight), **parts)
    model.decoder.weight = model.encoder.weight
    (fault,) = faults_of(model, X)
    assert fault.message.startswith("decoder.bias: no gradient, unused")
    assert fault.module == "decoder"


def lost(model, step, held=None):
    """(level, kind, module) of what a step finds of parameters without a gradient."""
    optimizer = None if held is None else torch.optim.SGD(held, 0.1)
    with chainrule.record(model, optimizer=optimizer) as recording:
        step(model).backward()
    faults = (each for each in recording.trace.faults if each.kind in ("detach", "no_gradient"))
    return [(each.level, each.kind, each.module) for each in faults]


@pytest.mark.parametrize("between", [torch.Tensor.detach, without_gradients(torch.tanh)], ids=["detach", "no_grad"])
def test_a_cut_before_what_the_optimizer_leaves_out_is_a_note(between):
    model = Two(between)

    def level(held):
        ((level, kind, _),) = lost(model, lambda model: model(X).square().mean(), held)
        assert kind == "detach"
        return level

    assert level(model.head.parameters()) == "note"
    assert level([*model.head.parameters(), model.encoder[0].bias]) == "fault"
    assert level(Two().parameters()) == "fault"  # an optimizer of another model says nothing about this one
    assert level(None) == "fault"


def test_a_head_of_another_phase_is_a_note():
    model = Two()
    model.other, model.forgotten = nn.Linear(6, 3), nn.Linear(6, 3)
    held = [*model.encoder.parameters(), *model.head.parameters(), *model.forgotten.parameters()]
    found = lost(model, lambda model: model(X).square().mean(), held)
    assert found == [("fault", "no_gradient", "forgotten"), ("note", "no_gradient", "other")]


@pytest.mark.parametrize("kept", [nn.ModuleList, lambda each: nn.ModuleDict(zip("abcd", each, strict=True))])
def test_an_unused_expert_beside_a_used_one_is_a_note(kept):
    experts = kept([net(4, 6, 4), net(4, 6, 4), net(4, 5, 4), nn.Linear(4, 4)])
    names = list(dict(experts.named_children()))
    model = Parts(lambda self, x: dict(self.experts.named_children())[names[0]](x), experts=experts)
    assert lost(model, lambda model: model(X).sum()) == [
        ("fault", "no_gradient", f"experts.{names[2]}"),  # of other shapes
        ("fault", "no_gradient", f"experts.{names[3]}"),
        ("note", "no_gradient", f"experts.{names[1]}"),
    ]


def test_an_unused_layer_beside_an_equal_one_outside_of_a_container_is_a_fault():
    model = Parts(lambda self, x: self.first(x), first=nn.Linear(4, 4), second=nn.Linear(4, 4))
    assert lost(model, lambda model: model(X).sum()) == [("fault", "no_gradient", "second")]


def energy(model):
    """As in a Hamiltonian net: the loss is of the derivatives of the output."""
    x = X.clone().requires_grad_()
    (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
    return slope.square().mean()


def test_the_last_bias_of_a_net_that_is_differentiated_only_is_a_note():
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))
    assert lost(model, energy) == [("note", "no_gradient", "2")]
    assert model[2].bias.grad is None


class ForgetsTheBias(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return gradient @ weight, gradient.t() @ x, None


def test_a_bias_that_the_backward_of_a_function_forgets_is_a_fault():
    model = Parts(lambda self, x: ForgetsTheBias.apply(x, *self.layer.parameters()), layer=nn.Linear(4, 2))
    assert lost(model, lambda model: model(X).sum()) == [("fault", "no_gradient", "layer")]


class GivesNone(torch.autograd.Function):
    @staticmethod
    def forward(_, x):
        return x * 2

    @staticmethod
    def backward(_, __):
        return None


@WATCHED
def test_a_backward_that_returns_none_for_its_only_input_is_named(watched):
    trace, (fault,) = run(Two(GivesNone.apply), X, watched=watched)
    assert (
        fault.message == "encoder (4 parameters): no gradient, no path: the backward of mul returned no gradient for it"
    )
    assert trace.ops[int(fault.op[1:])].source.function == "GivesNone.forward"


@WATCHED
@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_is_no_fault(reentrant, watched):
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(Two):
        def forward(self, x):
            return self.head(checkpoint(self.encoder, x.requires_grad_(), use_reentrant=reentrant))

    assert faults_of(Checkpointed(), torch.randn(16, 4), watched=watched) == ()


@WATCHED
def test_a_custom_function_is_no_fault_and_hides_none(watched):
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(_, x):
            return x * 2

        @staticmethod
        def backward(_, gradient):
            return gradient * 2

    assert faults_of(Two(Double.apply), X, watched=watched) == ()
    (cut,) = faults_of(Two(lambda hidden: Double.apply(hidden).detach()), X, watched=watched)
    assert cut.message.startswith("detach cuts the graph: encoder (4 parameters)")


@WATCHED
def test_a_pass_that_should_go_back_names_the_cut_that_kept_it_from_it(watched):
    model = Two(torch.Tensor.detach)
    model.head.requires_grad_(False)
    evidence = evidence_of(model)
    recording = record(model, on_tensor=evidence.watch if watched else None)
    with recording:
        recording.set_loss(model(X).sum())
    assert find_faults(recording.trace, evidence_of(model)) == ()
    cut, frozen = find_faults(recording.trace, evidence, goes_back=True)
    assert "detach cuts the graph: encoder (4 parameters)" in cut.message
    assert frozen.module == "head"


class Growing(nn.Module):
    """Twelve layers; one of them has weights that are far too large."""

    def __init__(self, at):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(12))
        with torch.no_grad():
            self.layers[at].weight.mul_(1e38)
            self.layers[at - 1].weight.mul_(1e3)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def test_only_the_first_non_finite_tensor_is_named():
    trace, faults = run(Growing(5), torch.randn(16, 8))
    (fault,) = only(faults, "first_nonfinite")
    op = trace.ops[int(fault.op[1:])]
    assert fault.module == "layers.5"
    assert trace.tensor_by_id[fault.tensor].producer == op.id
    summary = trace.statistics[fault.tensor]
    assert summary.nan + summary.posinf + summary.neginf > 0
    assert all(s.nan + s.posinf + s.neginf == 0 for s in map(trace.statistics.__getitem__, op.inputs))
    assert "linear computed it from finite values" in fault.message
    assert fault.source.text == "x = layer(x)"


def test_the_remedy_depends_on_why_a_number_is_not_finite():
    def remedy(model, x):
        (fault,) = only(faults_of(model, x), "first_nonfinite")
        return fault.remedy

    class Logarithm(nn.Linear):
        def forward(self, x):
            return super().forward(x).abs().neg().log()

    half = nn.Linear(4, 2).half()
    with torch.no_grad():
        half.weight.fill_(300)
    assert remedy(half, torch.full((16, 4), 100.0).half()).startswith(
        "The largest float16 number is 65504: scale the loss"
    )
    assert remedy(Growing(5), torch.randn(16, 8)).startswith("The values grow from layer to layer")
    assert remedy(Logarithm(4, 2), X) == "Keep the input of log away from 0: clamp it, or add a small constant."


def test_an_input_that_is_not_finite_is_named_itself():
    x = X.clone()
    x[3, 1] = torch.nan
    (fault,) = only(faults_of(Two(), x), "first_nonfinite")
    assert fault.op is None
    assert fault.message == (
        "input is the first tensor that is not finite: 1.56 % NaN. No op of the pass computed it: it is given as input"
    )
    for infinite in (torch.inf, -torch.inf):
        x[3, 1] = infinite
        (fault,) = only(faults_of(Two(), x), "first_nonfinite")
        assert fault.op is None
        assert fault.message.startswith("input is the first tensor that is not finite: 1.56 % Inf")


def test_a_mask_of_infinity_is_no_fault_unless_it_leaves_nothing():
    def forward(self, x, mask):
        return self.layer(x).masked_fill(mask, float("-inf")).softmax(1)

    mask = torch.eye(16, 4, dtype=torch.bool)
    model = Parts(forward, layer=nn.Linear(4, 4))
    assert faults_of(model, X, mask, loss=lambda out: out**2) == ()
    mask[3] = True
    trace, faults = run(model, X, mask, loss=lambda out: out**2)
    (fault,) = only(faults, "first_nonfinite")
    assert trace.ops[int(fault.op[1:])].name == "softmax"
    assert "(Inf on purpose)" in fault.message


@pytest.mark.parametrize("keep", [nn.Module.register_buffer, setattr], ids=["buffer", "constant"])
def test_an_infinite_tensor_of_the_model_is_no_fault(keep):
    model = Parts(lambda self, x: (self.layer(x[:4]) + self.causal).softmax(1), layer=nn.Linear(4, 4))
    keep(model, "causal", torch.full((4, 4), -torch.inf).triu(1))
    assert faults_of(model, X, loss=lambda out: out**2) == ()


def test_an_infinite_slope_is_named_with_its_remedy():
    def forward(self, x):
        hidden = self.layer(x).relu()
        return torch.where(hidden > 0, hidden.sqrt(), torch.zeros_like(hidden))

    (fault,) = only(faults_of(Parts(forward, layer=nn.Linear(4, 4)), X), "first_nonfinite")
    assert "SqrtBackward0 computed it from finite values" in fault.message
    assert fault.remedy.startswith(
        "Keep the input of sqrt away from 0: clamp it, or add a small constant. A torch.where"
    )
    assert fault.source.text == "return torch.where(hidden > 0, hidden.sqrt(), torch.zeros_like(hidden))"


def test_uninitialized_memory_is_not_checked():
    def filled(x):
        out = torch.empty(16, 4)
        out[:8] = x[:8]
        out[8:] = x[8:]
        return out * x

    # torch then fills it with NaN.
    torch.use_deterministic_algorithms(True)
    try:
        with record() as recording:
            filled(X.clone().requires_grad_()).sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
    assert find_faults(recording.trace) == ()


def test_a_forward_that_raises_names_its_op():
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(5, 2))
    model.spare = nn.Linear(1, 1)
    trace, faults = run(model, X)
    (fault,) = faults
    assert fault.kind == "failed"
    assert fault.op == trace.error.op
    assert fault.module == "2"
    assert "shapes cannot be multiplied" in fault.message


def test_a_relu_in_place_on_what_a_backward_needs_is_found():
    def forward(self, x):
        gate = torch.sigmoid(self.layer(x))
        return gate.sub_(0.5).relu_()

    trace, (failed, in_place) = run(Parts(forward, layer=nn.Linear(4, 4)), X)
    assert (failed.kind, in_place.kind) == ("failed", "in_place")
    names = {op.id: op.name for op in trace.ops}
    assert names[failed.op] == "sigmoid"
    assert names[in_place.op] == "sub_"
    assert "sub_ changes sigmoid in place, but sigmoid (test_faults.py:" in in_place.message
    assert in_place.source.text == "return gate.sub_(0.5).relu_()"
    assert "sub instead of sub_" in in_place.remedy


def test_a_write_through_a_view_is_found():
    def overwriting(x):
        out = torch.exp(x)
        out.view(-1)[3] = 0.0
        return out

    x = X.clone().requires_grad_()
    recording = record(overwriting)
    with pytest.raises(RuntimeError, match="inplace"), recording:
        overwriting(x).sum().backward()
    failed, in_place = find_faults(recording.trace)
    assert "setitem_ changes exp in place" in in_place.message
    assert in_place.remedy == "Write into a clone of exp."
    assert failed.source.text == "out = torch.exp(x)"


def test_a_write_to_a_parameter_is_found():
    def forward(self, x):
        self.layer.weight.mul_(0.9)
        return self.layer(x)

    failed, in_place = faults_of(Parts(forward, layer=nn.Linear(4, 4)), X)
    assert failed.op == in_place.op
    assert "torch.no_grad()" in in_place.remedy


def test_a_change_through_data_is_found_though_nothing_raises():
    def forward(self, x):
        out = torch.tanh(self.layer(x))
        out.data.mul_(2)
        return out

    model = Parts(forward, layer=nn.Linear(4, 4))
    trace, (fault,) = run(model, X)
    assert trace.error is None
    assert fault.kind == "in_place"
    assert "mul_ changes tanh through .data" in fault.message
    # And it is so: with tanh' of the doubled values the gradient is another.
    wrong = model.layer.bias.grad.clone()
    model.zero_grad()
    (torch.tanh(model.layer(X)) * 1).sum().backward()
    assert not torch.allclose(wrong, model.layer.bias.grad)


class Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(*_):
        raise RuntimeError("out of luck")


def test_a_backward_that_raises_names_its_op():
    trace, faults = run(Two(Broken.apply), X)
    (failed,) = only(faults, "failed")
    op = trace.ops[int(failed.op[1:])]
    assert (op.name, op.phase, trace.ops[int(op.twin[1:])].name) == ("BrokenBackward", "backward", "mul")
    assert failed.message == "RuntimeError: out of luck"
    told = with_faults(trace)
    assert told.error.op == failed.op
    assert told.error.message == trace.error.message
    assert told.faults[0] == failed


def test_a_loss_without_a_graph_names_the_cut():
    failed, cut = faults_of(Two(), X, loss=lambda out: out.detach())
    assert "does not require grad" in failed.message
    assert cut.kind == "detach"
    assert cut.source.file == "test_faults.py"


@pytest.mark.parametrize(
    ("loss", "kind", "op"),
    [
        (lambda out: (out.argmax(1) == 0).float().mean(), "no_gradient", "argmax"),
        (lambda out: out.round().int().sum(), "no_gradient", "int"),
        (lambda out: out.tanh().data.sum(), "detach", "data"),
        (lambda out: torch.tensor(out.sum().item()), "no_gradient", "sum"),
    ],
    ids=["argmax", "int", "data", "item"],
)
def test_a_loss_that_leads_nowhere_back_names_the_op_where_the_way_ends(loss, kind, op):
    def logged(out):
        out.detach()  # not on the way
        return loss(out)

    model = Two()
    with pytest.raises(RuntimeError, match="does not"), chainrule.record(model) as recording:
        logged(model(X)).backward()
    failed, why = recording.trace.faults
    assert (failed.kind, why.kind) == ("failed", kind)
    assert failed.op == why.op == recording.trace.error.op
    assert failed.source == why.source
    assert recording.trace.ops[int(why.op[1:])].name == op
    assert "the whole model (6 parameters)" in why.message


def test_faults_of_a_kind_are_listed_up_to_a_limit():
    def forward(self, x):
        return sum(layer(x).detach().sum() for layer in self.layers) + self.last(x).sum()

    model = Parts(forward, layers=nn.ModuleList(nn.Linear(4, 4) for _ in range(20)), last=nn.Linear(4, 4))
    cuts = only(faults_of(model, X), "detach")
    assert len(cuts) == MAX_OF_A_KIND
    assert cuts[-1].message.endswith(f"(and {20 - MAX_OF_A_KIND} more of this kind)")


def test_a_saturated_layer_is_named_but_not_a_confident_output():
    def forward(self, x):
        return torch.sigmoid(self.out(torch.tanh(self.factor * self.hidden(x))) * 1e3)

    model = Parts(forward, hidden=nn.Linear(8, 16), out=nn.Linear(16, 1), factor=1.0)
    loss = lambda out: F.binary_cross_entropy(out, torch.ones_like(out))  # noqa: E731
    assert only(faults_of(model, torch.randn(64, 8), loss=loss), "saturated") == []
    model.factor = 100.0
    (fault,) = only(faults_of(model, torch.randn(64, 8), loss=loss), "saturated")
    assert "of tanh is saturated" in fault.message


def test_faults_are_part_of_a_dump_and_of_the_message_that_follows_a_frame():
    trace, faults = run(Two(torch.Tensor.detach), X)
    trace = dataclasses.replace(trace, faults=faults)
    assert load(dump_trace(trace)).faults == faults
    body = json.loads(dump_trace(trace))
    fields = ["kind", "message", "module", "op", "tensor", "source", "remedy", "level", "layers", "rule"]
    assert list(body["faults"][0]) == fields
    del body["faults"]
    assert load(json.dumps(body)).faults == ()
    assert json.loads(theory_message(theory(trace), 3, faults))["faults"] == json.loads(dump_trace(trace))["faults"]


def test_unregistered_parameters_come_before_missing_gradients():
    def forward(self, x):
        return self.layers[1](self.layers[0](x)) + self.spare.weight.detach().sum()

    model = Parts(forward, layers=[nn.Linear(4, 4), nn.Linear(4, 4)], spare=nn.Linear(4, 4))
    trace, _ = run(model, torch.randn(3, 4))
    evidence = evidence_of(model)
    evidence.unregistered = tuple(
        tensor.id for tensor in trace.tensors if tensor.role == "parameter" and "spare" not in tensor.name
    )
    assert len(evidence.unregistered) == 4
    faults = find_faults(trace, evidence)
    assert [fault.kind for fault in faults][:2] == ["unregistered", "detach"]
    op = next(op for op in trace.ops if op.id == faults[0].op)
    assert (op.name, op.inputs[1]) == ("linear", faults[0].tensor)
