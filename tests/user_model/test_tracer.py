"""The tracer of a user's model: a function of subject, seed and what-if without side effects."""

import copy
import random
import threading
import weakref
from collections import deque

import numpy as np
import pytest
import torch
from source_lines import line_of
from torch import nn

from chainrule.build.redraw import redraw
from chainrule.errors import MemoryLimitError, StoppedError
from chainrule.stopping import Stop, stoppable
from chainrule.trace import record
from chainrule.user_model.subject import Subject, make_subject
from chainrule.user_model.tracer import Tracer
from chainrule.user_model.what_if import WhatIf

MODELS = ("deep_mlp.py:make", "convnet.py:make", "custom_function.py:make", "blocks.py:make")


def bits(tensor):
    return tensor.detach().clone().contiguous().view(torch.uint8) if tensor.dim() else tensor.detach().clone()


def snapshot(subject):
    tensors = {name: bits(each) for name, each in subject.model.state_dict().items()}
    tensors |= {
        f"{name}.grad": bits(each.grad) for name, each in subject.model.named_parameters() if each.grad is not None
    }
    tensors |= {f"input {index}": bits(each) for index, each in enumerate(subject.inputs)}
    tensors |= {
        f"input {index}.grad": bits(each.grad) for index, each in enumerate(subject.inputs) if each.grad is not None
    }
    attributes = [{name: id(value) for name, value in vars(each).items()} for each in subject.model.modules()]
    tensors["torch"] = torch.get_rng_state()
    return tensors, (attributes, random.getstate(), np.random.get_state()[1].tolist())


def same_snapshot(one, other):
    return (
        one[0].keys() == other[0].keys()
        and all(torch.equal(one[0][name], other[0][name]) for name in one[0])
        and one[1] == other[1]
    )


def numbers(trace):
    """Names, statistics and loss, which equal passes share."""
    table = trace.statistics
    return (
        [tensor.name for tensor in trace.tensors],
        table.tensors,
        table.moments.tobytes(),
        table.counts.tobytes(),
        trace.loss,
    )


def recorded_by_hand(model, subject, seed=42):
    """The trace of a plain recording, with the tracer's seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        with record(model) as recording:
            output = model(*subject.args, **subject.kwargs)
            loss = output if subject.loss is None else subject.loss(output)
            loss.backward()
    return recording.trace


def statistics_by_name(trace):
    rows = {tensor: row for row, tensor in enumerate(trace.statistics.tensors)}
    return {
        tensor.name: trace.statistics.moments[rows[tensor.id]].tobytes()
        + trace.statistics.counts[rows[tensor.id]].tobytes()
        for tensor in trace.tensors
        if tensor.id in rows and not tensor.name.startswith("loss")
    }


# ------------------------------------------------------------------------------------------- nothing of it is touched
@pytest.mark.parametrize("reference", MODELS)
def test_model_inputs_and_generators_are_unchanged(own, reference):
    subject = own(reference).subject
    recorded_by_hand(subject.model, subject)  # so that there are gradients and running statistics
    for each in subject.inputs:
        each.grad = torch.randn_like(each)
    before = snapshot(subject)
    tracer = Tracer(subject)
    for what_if in (WhatIf(), WhatIf(scale=2.0), WhatIf(init="kaiming_normal", seed=3), WhatIf()):
        tracer.trace(what_if)
        tracer.record(what_if)
    assert same_snapshot(before, snapshot(subject))


class Restless(nn.Module):
    """Writes to its weight, its input and every kind of attribute, draws from its own generators, and has a lock."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 3))
        self.register_buffer("average", torch.zeros(3))
        self.calls, self.last_input, self.total = 0, None, torch.zeros(3)
        self.seen, self.by_name, self.last = [], {"all": []}, deque(maxlen=2)
        self.free = torch.ones(3, requires_grad=True)
        self.lock = threading.Lock()
        self.run = lambda x: x @ self.weight
        self.generators = torch.Generator().manual_seed(1), random.Random(1)
        self.numpys = np.random.default_rng(1), np.random.RandomState(1)

    def forward(self, x):
        self.calls += 1
        self.last_input = x
        self.average = 0.9 * self.average + x.mean(0).detach()
        for container in (self.seen, self.by_name["all"], self.last):
            container.append(x)
        with torch.no_grad():
            self.weight.mul_(0.5)
            x.add_(1)
        with self.lock:
            out = self.run(x * self.calls * self.free)
        self.total += out.detach().sum(0)
        drawn = [torch.randn(3, generator=self.generators[0]).sum(), self.generators[1].random()]
        drawn += [each.random() for each in self.numpys]
        count = len(self.seen) + len(self.by_name["all"]) + len(self.last)
        return out.sum() * count + self.average.sum() + self.total.sum() + sum(drawn)


def test_a_model_that_writes_to_all_it_has_is_reset_before_and_after_each_pass():
    subject = Subject(Restless(), (torch.randn(4, 3),))
    before = snapshot(subject)
    tracer = Tracer(subject)
    losses = [tracer.trace(WhatIf(scale=scale)).loss for scale in (1.0, 2.0, 1.0, 2.0)]
    assert losses[:2] == losses[2:]
    assert losses[0] != losses[1]
    # An equal what-if still resets what the last pass wrote to.
    assert tracer.trace(WhatIf(scale=2.0, seed=7)).loss == losses[1]
    assert Tracer(subject).trace(WhatIf(scale=2.0)).loss == losses[1]
    assert same_snapshot(before, snapshot(subject))
    model = subject.model
    assert (model.seen, model.by_name, len(model.last), model.free.grad) == ([], {"all": []}, 0, None)
    assert not model.total.any()


# ----------------------------------------------------------------------------------------------------------- the pass
@pytest.mark.parametrize(
    ("reference", "what_if"),
    [*((reference, WhatIf()) for reference in MODELS)]
    + [("deep_mlp.py:make", WhatIf(1.7, group)) for group in ("", "layers.7", "head")],
)
def test_statistics_equal_those_of_a_plain_recording_of_scaled_weights(own, reference, what_if):
    subject = own(reference).subject
    by_hand = copy.deepcopy(subject.model)
    with torch.no_grad():
        for name, parameter in by_hand.named_parameters():
            if parameter.dim() >= 2 and name.startswith(what_if.group):
                parameter.mul_(what_if.scale)
    theirs = recorded_by_hand(by_hand, subject)
    tracer = Tracer(subject)
    tracer.trace(WhatIf(scale=3.0))
    ours = tracer.trace(what_if)
    assert ours.loss == theirs.loss
    wanted, found = statistics_by_name(theirs), statistics_by_name(ours)
    assert len(found.keys() & wanted.keys()) > 0.9 * len(wanted)
    assert all(found[name] == wanted[name] for name in found.keys() & wanted.keys())


def test_init_draws_the_weights_of_its_group_by_seed_and_name(own):
    subject = own("convnet.py:make").subject
    by_hand = copy.deepcopy(subject.model)
    with torch.no_grad():
        for index in (0, 4):
            weight = by_hand.features[index].weight
            weight.copy_(redraw("kaiming_uniform", 9, f"features.{index}.weight", tuple(weight.shape)) * 0.5)
    wanted = recorded_by_hand(by_hand, subject)
    found = Tracer(subject).trace(WhatIf(0.5, "features", "kaiming_uniform", 9))
    assert found.loss == wanted.loss
    other = Tracer(subject).trace(WhatIf(0.5, "features", "kaiming_uniform", 10))
    assert other.loss != wanted.loss


def test_a_tied_weight_is_scaled_once_and_drawn_by_its_first_name():
    embed, head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
    head.weight = embed.weight
    model = nn.Sequential(embed, head)
    subject = Subject(model, (torch.arange(7),), loss=torch.sum)
    for group in ("", "0", "1"):
        by_hand = copy.deepcopy(model)
        with torch.no_grad():
            by_hand[0].weight.mul_(2)
        assert Tracer(subject).trace(WhatIf(2.0, group)).loss == by_hand(torch.arange(7)).sum()
        with torch.no_grad():
            by_hand[0].weight.copy_(redraw("xavier_normal", 42, "0.weight", (7, 4)))
        assert Tracer(subject).trace(WhatIf(1.0, group, "xavier_normal")).loss == by_hand(torch.arange(7)).sum()


@pytest.mark.parametrize("reference", MODELS)
def test_a_trace_does_not_depend_on_earlier_traces(own, reference):
    model = own(reference)
    tracer = model.tracer()
    group = model.groups[-1]
    what_ifs = [
        WhatIf(),
        WhatIf(scale=1.5),
        WhatIf(scale=1.5, group=group),
        WhatIf(init="orthogonal"),
        WhatIf(scale=0.5, init="orthogonal"),
        WhatIf(init="orthogonal", seed=1),
        WhatIf(scale=1.5, group=group, init="zeros"),
        WhatIf(init="orthogonal", seed=1),
        WhatIf(),
    ]
    for what_if in what_ifs:
        tracer.record(what_ifs[-3])  # the copy is used in between
        assert numbers(tracer.trace(what_if)) == numbers(model.tracer().trace(what_if)), what_if


def test_a_recording_is_reused_and_a_repeated_what_if_is_not_computed(own):
    tracer = own("deep_mlp.py:make").tracer()
    first = tracer.trace()
    recording = tracer.recording
    scaled = tracer.trace(WhatIf(scale=1.5))
    assert tracer.recording is recording
    assert scaled.ops is first.ops
    assert tracer.trace(WhatIf(scale=1.5)) is scaled
    tracer.forget()
    assert tracer.kept_bytes == 0
    assert numbers(tracer.trace(WhatIf(scale=1.5))) == numbers(scaled)
    assert tracer.recording is not recording


def test_one_tracer_records_at_both_levels(own):
    subject = own("deep_mlp.py:make").subject
    tracer = Tracer(subject)
    for scale, recording in ((1, "op"), (1, "aten"), (1.5, "aten"), (1.5, "op"), (2, "op"), (2, "aten"), (1, "op")):
        trace, plain = tracer.trace(WhatIf(scale, recording=recording)), Tracer(subject).trace(WhatIf(scale))
        assert ({"t", "addmm"} <= {op.name for op in trace.ops}) is (recording == "aten")
        assert trace.loss == plain.loss
        assert not trace.faults or [each.kind for each in trace.faults] == [each.kind for each in plain.faults]


class Mixture(nn.Module):
    """Sends the whole batch to one expert, chosen by its router."""

    def __init__(self, experts):
        super().__init__()
        self.router = nn.Linear(4, 2)
        self.experts = experts

    def forward(self, x):
        chosen = int(self.router(x).mean(0).argmax())
        return self.answer(self.experts[chosen], x).sum()

    def answer(self, expert, x):
        return expert(x)


class Direct(Mixture):
    """A mixture of matrices, which no module tells apart."""

    def answer(self, expert, x):
        return x @ expert


@pytest.mark.parametrize("kind", ["modules", "frozen modules", "parameters"])
def test_another_expert_is_recorded_again(kind):
    torch.manual_seed(0)
    if kind == "parameters":
        model = Direct(nn.ParameterList(torch.randn(4, 4) for _ in range(2)))
    else:
        model = Mixture(nn.ModuleList(nn.Linear(4, 4) for _ in range(2)))
        # Without gradients only the modules show which expert answered.
        model.experts.requires_grad_(kind == "modules")
    subject = Subject(model, (torch.randn(5, 4, requires_grad=True),))
    tracer = Tracer(subject)
    losses, recordings = set(), set()
    for seed in range(12):
        what_if = WhatIf(group="router", init="kaiming_normal", seed=seed)
        trace = tracer.trace(what_if)
        fresh = Tracer(subject).trace(what_if)
        assert numbers(trace) == numbers(fresh)
        assert [module.path for module in trace.modules] == [module.path for module in fresh.modules]
        losses.add(trace.loss)
        recordings.add(tracer.recording)
    assert len(losses) == 2
    assert len(recordings) > 1


class Gated(nn.Module):
    """Adds its state, or not: two graphs of the same calls of functions."""

    def __init__(self):
        super().__init__()
        self.enters, self.first, self.second, self.head = (nn.Linear(8, size) for size in (8, 8, 8, 2))

    def forward(self, x):
        x = self.enters(x)
        branch = self.first(x) + self.second(x)
        both = branch + x
        return self.head(both if branch.detach().abs().max() < 4 else branch).pow(2).mean()


def test_a_repetition_sees_that_a_value_is_no_longer_used():
    torch.manual_seed(0)
    subject = make_subject((Gated(), torch.randn(4, 8)), "gated")
    tracer, graphs = Tracer(subject), set()
    for scale in (1.0, 20.0, 1.0):
        trace, fresh = tracer.trace(WhatIf(scale=scale)), Tracer(subject).trace(WhatIf(scale=scale))
        made = [(op.name, op.inputs, op.outputs) for op in trace.ops]
        assert made == [(op.name, op.inputs, op.outputs) for op in fresh.ops]
        graphs.add(str(made))
    assert len(graphs) == 2


def test_other_shapes_are_recorded_again():
    class Split(nn.Module):
        def __init__(self):
            super().__init__()
            self.router = nn.Linear(4, 1)
            self.expert = nn.Linear(4, 4)

        def forward(self, x):
            chosen = self.router(x).squeeze(1) > 0
            return self.expert(x[chosen]).sum()

    torch.manual_seed(0)
    subject = Subject(Split(), (torch.randn(9, 4),))
    tracer = Tracer(subject)
    sizes = set()
    for seed in range(6):
        trace = tracer.trace(WhatIf(group="router", init="standard_normal", seed=seed))
        sizes.add(trace.tensor_by_name["expert.linear"].shape[0])
        fresh = Tracer(subject).trace(WhatIf(group="router", init="standard_normal", seed=seed))
        assert [tensor.shape for tensor in trace.tensors] == [tensor.shape for tensor in fresh.tensors]
    assert len(sizes) > 1


def test_all_generators_draw_from_the_seed_and_are_restored():
    class Noisy(nn.Linear):
        def forward(self, x):
            return super().forward(x).sum() * random.random() * np.random.rand() * torch.rand(())

    subject = Subject(Noisy(3, 2), (torch.randn(4, 3),))
    losses = []
    for start in (1, 2):
        random.seed(start)
        np.random.seed(start)
        torch.manual_seed(start)
        wanted = random.getstate(), np.random.get_state()[1].tolist()
        losses.append(Tracer(subject, seed=5).trace().loss)
        assert (random.getstate(), np.random.get_state()[1].tolist()) == wanted
    assert losses[0] == losses[1] != Tracer(subject, seed=6).trace().loss


def test_gradients_are_recorded_under_no_grad_and_inference_mode(own):
    subject = own("blocks.py:make").subject
    with torch.no_grad():
        trace = Tracer(subject).trace()
    assert "head.weight.g" in trace.tensor_by_name
    with torch.inference_mode():
        assert numbers(Tracer(subject).trace()) == numbers(trace)


@pytest.mark.parametrize(
    ("total", "kinds"),
    [
        (lambda out: out.detach().sum(), {"detach"}),
        (lambda out: (out > 0).float().sum(), {"no_gradient"}),
    ],
    ids=["detached", "not differentiable"],
)
def test_a_loss_without_a_gradient_has_a_forward_pass_and_faults(total, kinds):
    class Model(nn.Linear):
        def forward(self, x):
            return total(super().forward(x))

    trace = Tracer(Subject(Model(3, 2), (torch.randn(4, 3),))).trace()
    assert trace.error is None
    assert {op.phase for op in trace.ops} == {"forward"}
    assert {fault.kind for fault in trace.faults} == kinds


def test_keyword_inputs_have_their_names_and_labels_are_targets():
    class Classifier(nn.Linear):
        def forward(self, pixels, labels):
            logits = super().forward(pixels)
            return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

    subject = Subject(Classifier(3, 2), (), {"pixels": torch.randn(4, 3), "labels": torch.tensor([0, 1, 0, 1])})
    trace = Tracer(subject).trace()
    assert trace.tensor_by_name["pixels"].role == "input"
    assert trace.tensor_by_name["labels"].role == "target"
    assert trace.loss == pytest.approx(float(subject.model(**subject.kwargs)["loss"].detach()))


# -------------------------------------------------------------------------------------------------- what goes wrong
def test_a_failing_forward_is_traced_up_to_its_error(own):
    model = own("breaks.py:make_wrong_shape")
    tracer = model.tracer()
    line = line_of(model.files[0], "# BREAKS")
    for what_if in (WhatIf(), WhatIf(scale=2.0)):
        trace = tracer.trace(what_if)
        place, _, message = trace.error.message.partition(": ")
        assert place.endswith(f"breaks.py:{line}")
        assert message.startswith("RuntimeError: ")
        assert "mat1 and mat2 shapes cannot be multiplied" in message
        op = next(each for each in trace.ops if each.id == trace.error.op)
        assert (op.name, op.source.line) == ("linear", line)
        assert [each.name for each in trace.ops][:2] == ["linear", "relu"]
        assert trace.faults[0].kind == "failed"


def test_an_error_outside_user_code_has_the_place_of_the_op_or_model(own):
    trace = own("breaks.py:make_changed_in_place").tracer().trace()
    assert "modified by an inplace operation" in trace.error.message
    assert trace.loss is not None
    assert {op.phase for op in trace.ops} == {"forward", "backward"}
    (source,) = {each.source for each in trace.ops if each.id == trace.error.op}
    assert trace.error.message.startswith(f"tests/shared/user_models/breaks.py:{source.line}: ")
    assert trace.faults[0].message == trace.error.message
    made = nn.Sequential(nn.Embedding(3, 2), nn.Flatten()), torch.tensor([[3]]), torch.mean
    trace = Tracer(make_subject(made, "make", place="model.py:12")).trace()
    assert trace.error.message == "model.py:12: in 0: IndexError: index out of range in self"


def test_gradients_from_another_thread_are_no_fault():
    class Threaded(nn.Sequential):
        def forward(self, x):
            out = []
            thread = threading.Thread(target=lambda: out.append(self[0](x)))
            thread.start()
            thread.join()
            return self[1](out[0]).sum()

    trace = Tracer(Subject(Threaded(nn.Linear(3, 3), nn.Linear(3, 2)), (torch.randn(4, 3),))).trace()
    assert trace.faults == ()


class Mute(BaseException):
    def __str__(self):
        raise ValueError


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, Mute])
def test_exits_of_a_model_are_errors_of_its_trace(error):
    class Leaves(nn.Linear):
        def forward(self, x):
            if self.weight.abs().max() > 1:
                raise error
            return super().forward(x).sum()

    tracer = Tracer(Subject(Leaves(3, 2), (torch.randn(4, 3),)))
    traces = []
    # Views compute in a thread, which Ctrl-C does not interrupt.
    thread = threading.Thread(
        target=lambda: traces.extend(tracer.trace(WhatIf(scale=each)) for each in (9.0, 1.0, 9.0))
    )
    thread.start()
    thread.join()
    assert numbers(traces[1]) == numbers(Tracer(tracer.subject).trace())
    assert f"{error.__name__}: " in traces[0].error.message
    assert f"{error.__name__}: " in traces[2].error.message


@pytest.mark.parametrize("raised", [MemoryError("no room"), torch.OutOfMemoryError("CUDA out of memory. Tried …")])
@pytest.mark.parametrize("at", ["first", "later"])
def test_out_of_memory_names_the_place_and_keeps_nothing(raised, at):
    class Hungry(nn.Linear):
        def forward(self, x):
            out = super().forward(x).sum()
            if at == "first" or out.abs() > 1000:
                seen.append(weakref.ref(out))
                raise raised
            return out

    seen = []
    tracer = Tracer(Subject(Hungry(3, 2), (torch.randn(4, 3),)))
    if at == "later":
        tracer.trace()
    with pytest.raises(MemoryLimitError) as caught:
        tracer.trace(WhatIf(scale=10_000.0))
    assert "test_tracer.py:" in caught.value.message
    assert f"{type(raised).__name__}: {raised}" in caught.value.message
    assert tracer.kept_bytes == 0
    assert all(each() is None for each in seen)


def test_after_a_stopped_trace_the_next_is_whole(own):
    tracer = own("blocks.py:make").tracer()
    wanted = numbers(tracer.trace(WhatIf(scale=2.0)))
    for _ in range(2):
        stop = Stop()
        stop.ask(StoppedError("superseded"))
        with pytest.raises(StoppedError), stoppable(stop):
            tracer.trace(WhatIf(scale=3.0))
        tracer.trace(WhatIf(scale=1.5))
        assert numbers(tracer.trace(WhatIf(scale=2.0))) == wanted
        tracer.forget()


# ------------------------------------------------------------------------------------------------------------- values
def test_kept_bytes_include_the_copy(own):
    subject = own("convnet.py:make").subject
    tracer = Tracer(subject)
    assert tracer.kept_bytes == 0
    tracer.trace()
    parameters = sum(each.nbytes for each in subject.model.parameters())
    kept = tracer.kept_bytes
    assert kept > parameters
    tracer.trace(WhatIf(init="zeros"))
    weights = sum(each.nbytes for each in subject.model.parameters() if each.dim() >= 2)
    assert tracer.kept_bytes >= kept + weights
