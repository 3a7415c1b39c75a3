"""Faults that break a training although every number is correct: each check finds them, not their counter-examples."""

import copy
import math
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from lambda_modules import Parts
from torch import nn
from torch.optim import SGD, AdamW

import chainrule
from chainrule.diagnose.rules import FAULT_RULES
from chainrule.user_model.copies import copied_subject
from chainrule.user_model.subject import Subject
from chainrule.user_model.tracer import Tracer

N = 16
CLASSES = torch.arange(N) % 4


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def found(kind, model, *args, optimizer=None, loss=torch.sum, before=lambda: None):
    """The faults of one kind in a step; each has its op, its line, a remedy and a rule."""
    with chainrule.record(model, optimizer=optimizer) as recording:
        before()
        loss(model(*(args or (torch.randn(N, 8),)))).backward()
    return of_kind(kind, recording.trace)


def of_kind(kind, trace):
    faults = [each for each in trace.faults if each.kind == kind]
    ops = {op.id: op for op in trace.ops}
    for each in faults:
        assert each.level == "fault"
        assert each.remedy
        assert each.rule.startswith(FAULT_RULES[kind].rule)
        assert each.source == ops[each.op].source
    return [SimpleNamespace(name=ops[each.op].name, text=each.source.text, message=each.message) for each in faults]


def two_layers(**parts):
    def forward(self, x):
        hidden = torch.relu(self.first(x))
        return self.second(hidden)

    return Parts(forward, first=nn.Linear(8, 8), second=nn.Linear(8, 4), **parts)


# ------------------------------------------------------------------------------------------------------ no_optimizer


def test_parameters_that_no_optimizer_holds_are_named_where_they_are_read():
    model = two_layers()
    (fault,) = found("no_optimizer", model, optimizer=SGD(model.second.parameters(), 0.1))
    assert (fault.name, fault.text) == ("linear", "hidden = torch.relu(self.first(x))")
    assert fault.message.startswith("first (2 parameters): no given optimizer holds them")


def test_the_step_of_a_generator_alone_is_told_to_give_both_optimizers():
    """It looks like a part that was forgotten, as above, so it is a fault all the same."""
    model = two_layers()
    with chainrule.record(model, optimizer=SGD(model.first.parameters(), 0.1)) as recording:
        model(torch.randn(N, 8)).sum().backward()
    (fault,) = (each for each in recording.trace.faults if each.kind == "no_optimizer")
    assert fault.remedy.endswith("If another optimizer holds them, give the recording a list of all optimizers.")


def test_an_optimizer_of_another_model_holds_nothing():
    model = two_layers()
    (fault,) = found("no_optimizer", model, optimizer=SGD(two_layers().parameters(), 0.1))
    assert fault.message.startswith("the whole model (4 parameters)")


def test_two_optimizers_frozen_parameters_and_unused_ones_are_no_fault():
    model = two_layers(frozen=nn.Linear(8, 8).requires_grad_(False), unused=nn.Linear(8, 8))
    both = [SGD(model.first.parameters(), 0.1), AdamW(model.second.parameters())]
    assert found("no_optimizer", model, optimizer=both) == []
    assert found("no_optimizer", model) == []


def test_the_whole_step_may_be_recorded():
    """The gradients are gone at the end, and the parameters that got one are still known."""
    model = two_layers()
    optimizer = SGD([model.second.weight], 0.1)
    with chainrule.record(model, optimizer=optimizer) as recording:
        model(torch.randn(N, 8)).sum().backward()
        optimizer.step()
        model.zero_grad()
    (fault,) = of_kind("no_optimizer", recording.trace)
    assert fault.message.startswith("first, second.bias (3 parameters)")
    assert of_kind("no_gradient", recording.trace) == []


# ------------------------------------------------------------------------------------------------- leftover_gradient


def after_a_step(make=two_layers):
    model = make()
    optimizer = SGD(model.parameters(), 0.1)
    model(torch.randn(N, 8)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_gradients_of_the_step_before_are_found():
    model, optimizer = after_a_step()
    (fault,) = found("leftover_gradient", model, optimizer=optimizer)
    assert (fault.name, fault.text) == ("linear", "hidden = torch.relu(self.first(x))")
    assert fault.message.startswith("the whole model (4 parameters): .grad was not 0 before the backward pass")


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("inside", [True, False])
def test_gradients_that_are_cleared_before_the_backward_pass_are_no_fault(to_none, inside):
    model, optimizer = after_a_step()

    def clear():
        optimizer.zero_grad(set_to_none=to_none)

    if not inside:
        clear()
    assert found("leftover_gradient", model, optimizer=optimizer, before=clear if inside else lambda: None) == []


def test_an_accumulation_in_one_block_is_no_fault():
    model, optimizer = after_a_step()
    with chainrule.record(model, optimizer=optimizer) as recording:
        optimizer.zero_grad()
        for _ in range(3):
            model(torch.randn(N, 8)).sum().backward()
    assert of_kind("leftover_gradient", recording.trace) == []


def test_only_parameters_that_the_backward_pass_reaches_count():
    """Two networks in turn: the generator's gradients wait, untouched, for its own zero_grad()."""
    generator, discriminator = nn.Linear(8, 8), nn.Linear(8, 1)
    model = Parts(lambda self, x: self.d(self.g(x)), g=generator, d=discriminator)
    optimizers = [SGD(generator.parameters(), 0.1), SGD(discriminator.parameters(), 0.1)]
    x = torch.randn(N, 8)
    model(x).sum().backward()

    with chainrule.record(model, optimizer=optimizers) as recording:
        optimizers[1].zero_grad()
        discriminator(generator(x).detach()).sum().backward()
        optimizers[0].zero_grad(set_to_none=False)
        model(x).sum().backward()
    assert of_kind("leftover_gradient", recording.trace) == []


def test_a_graph_of_the_gradient_adds_to_another_tensor():
    model, optimizer = after_a_step()
    with chainrule.record(model, optimizer=optimizer) as recording, pytest.warns(UserWarning, match="create_graph"):
        model(torch.randn(N, 8)).sum().backward(create_graph=True)
    assert len(of_kind("leftover_gradient", recording.trace)) == 1
    model.zero_grad()


# --------------------------------------------------------------------------------------------------------- eval_mode


def with_norm(norm):
    def forward(self, x):
        hidden = self.first(x)
        return self.second(torch.relu(self.norm(hidden)))

    return Parts(forward, first=nn.Linear(8, 8), norm=norm, second=nn.Linear(8, 4))


def test_a_batch_norm_in_eval_mode_is_found():
    model = with_norm(nn.BatchNorm1d(8)).eval()
    (fault,) = found("eval_mode", model, optimizer=SGD(model.parameters(), 0.1))
    assert (fault.name, fault.text) == ("batch_norm", "return self.second(torch.relu(self.norm(hidden)))")
    assert fault.message.startswith("norm: batch norm in eval mode")


def test_one_norm_of_a_model_in_training_mode_is_found_if_it_learns():
    model = with_norm(nn.BatchNorm1d(8).eval())
    assert len(found("eval_mode", model, optimizer=SGD(model.parameters(), 0.1))) == 1


@pytest.mark.parametrize("frozen", ["no grad", "not held", "not affine", "no optimizer", "no gradient", "training"])
def test_a_batch_norm_that_is_frozen_on_purpose_is_no_fault(frozen):
    model = with_norm(nn.BatchNorm1d(8, affine=frozen != "not affine"))
    model.norm.train(frozen == "training")
    held = model.parameters()
    if frozen == "no grad":
        model.norm.requires_grad_(False)
    if frozen == "not held":
        held = [*model.first.parameters(), *model.second.parameters()]
    if frozen == "no gradient":  # a frozen backbone, all of it in eval mode
        model.eval()
        model.first.requires_grad_(False)
        model.norm.requires_grad_(False)
    assert found("eval_mode", model, optimizer=None if frozen == "no optimizer" else SGD(held, 0.1)) == []


def test_a_step_that_validates_first_or_last_is_in_training_mode():
    model = with_norm(nn.BatchNorm1d(8))
    x = torch.randn(N, 8)
    with chainrule.record(model, optimizer=SGD(model.parameters(), 0.1)) as recording:
        for _ in range(2):
            model.eval()
            with torch.no_grad():
                model(x)
            if model.first.weight.grad is None:
                model.train()(x).sum().backward()
    assert of_kind("eval_mode", recording.trace) == []


def with_dropout(drop):
    def forward(self, x):
        hidden = self.drop(torch.relu(self.first(x)))
        return self.second(hidden)

    return Parts(forward, first=nn.Linear(8, 8), drop=drop, second=nn.Linear(8, 4))


def test_a_dropout_in_eval_mode_is_found_at_the_line_that_calls_it():
    model = with_dropout(nn.Dropout(0.5)).eval()
    (fault,) = found("eval_mode", model, optimizer=SGD(model.parameters(), 0.1))
    assert (fault.name, fault.text) == ("relu", "hidden = self.drop(torch.relu(self.first(x)))")
    assert fault.message.startswith("drop: dropout in eval mode")


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(8), nn.Dropout(0.5)])
def test_a_net_that_an_input_is_optimized_through_is_no_fault(layer):
    model, image = with_norm(layer).eval().requires_grad_(False), nn.Parameter(torch.randn(N, 8))
    assert found("eval_mode", model, image, optimizer=SGD([image], 0.1)) == []
    model.second.requires_grad_()
    held = [image, *model.second.parameters()]
    assert len(found("eval_mode", model, image, optimizer=SGD(held, 0.1))) == 1


@pytest.mark.parametrize("case", ["p=0", "training", "on purpose", "frozen backbone", "no optimizer"])
def test_a_dropout_that_is_meant_to_drop_nothing_is_no_fault(case):
    model = with_dropout(nn.Dropout(0.0 if case == "p=0" else 0.5))
    model.train(case in ("training", "on purpose"))
    if case == "on purpose":
        model.drop.eval()
    if case == "frozen backbone":
        model.first.requires_grad_(False)
    assert found("eval_mode", model, optimizer=None if case == "no optimizer" else SGD(model.parameters(), 0.1)) == []


# ------------------------------------------------------------------------------------------------------------ untied


def language(head):
    """A language model; `head(embedding)` is its output layer's weight."""

    def forward(self, tokens):
        hidden = self.embedding(tokens)
        return hidden @ self.head.t()

    embedding = nn.Embedding(20, 8)
    return Parts(forward, embedding=embedding, head=head(embedding))


TOKENS = torch.arange(N)


@pytest.mark.parametrize("copied", [lambda each: each.clone(), lambda each: each.t().clone().t()], ids=["same", "t"])
def test_an_output_layer_that_copies_the_embedding_is_found(copied):
    model = language(lambda embedding: nn.Parameter(copied(embedding.weight.detach())))
    (fault,) = found("untied", model, TOKENS)
    assert (fault.name, fault.text) == ("matmul", "return hidden @ self.head.t()")
    assert fault.message.startswith("head and embedding.weight are two parameters with the same values")


@pytest.mark.parametrize(
    "head",
    [
        lambda embedding: embedding.weight,
        lambda embedding: nn.Parameter(embedding.weight.data),
        lambda embedding: nn.Parameter(embedding.weight.detach().clone(), requires_grad=False),
        lambda embedding: nn.Parameter(torch.randn_like(embedding.weight)),
    ],
    ids=["shared", "on one memory", "frozen", "another"],
)
def test_a_shared_a_frozen_and_another_output_layer_are_no_fault(head):
    assert found("untied", language(head), TOKENS) == []


def test_copied_layers_and_constants_are_no_fault():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    assert found("untied", encoder, torch.randn(2, 5, 8)) == []
    experts = nn.Linear(8, 8)
    model = Parts(lambda self, x: self.a(x) + self.b(x), a=experts, b=copy.deepcopy(experts))
    assert found("untied", model) == []
    model = language(lambda embedding: nn.Parameter(torch.ones_like(embedding.weight)))
    nn.init.ones_(model.embedding.weight)
    assert found("untied", model, TOKENS) == []


# --------------------------------------------------------------------------------------------------------- broadcast


def one_output():
    return Parts(lambda self, x: self.out(x), out=nn.Linear(8, 1))


TARGET = torch.linspace(-1, 1, N)


def squared(output):
    return ((output - TARGET) ** 2).mean()


def reversed_squared(output):
    return (TARGET - output).square().mean()


def by_function(output):
    with pytest.warns(UserWarning, match="different to the input size"):
        return F.mse_loss(output, TARGET)


def relative(output):
    return (output / (TARGET + 2)).square().mean()


ROW = TARGET[None, :]


def beside_a_row(output):
    return (output - ROW).square().mean()


def policy(output):
    return -(output[:, 0].exp() * TARGET[:, None]).mean()


def ratio(output):
    """As in PPO: an exponential of the differences, and not of their squares."""
    return -(output - TARGET).exp().clamp(0.8, 1.2).mean()


@pytest.mark.parametrize(
    ("loss", "name"),
    [
        *((squared, "sub"), (reversed_squared, "sub"), (by_function, "mse_loss"), (relative, "div")),
        *((beside_a_row, "sub"), (ratio, "sub")),
    ],
    ids=["squared", "reversed", "function", "quotient", "row", "ratio"],
)
def test_a_column_beside_a_row_in_the_loss_is_found(loss, name):
    (fault,) = found("broadcast", one_output(), loss=loss)
    assert fault.name == name
    assert "TARGET" in fault.text or "ROW" in fault.text
    assert f"({N}, 1)" in fault.message
    assert f"broadcasts to ({N}, {N}): the loss compares {N * N} pairs instead of {N}" in fault.message


def test_a_map_beside_one_with_a_last_axis_is_found():
    target = torch.randn(4, 4)
    (fault,) = found(
        "broadcast", one_output(), torch.randn(4, 4, 8), loss=lambda output: (output - target).abs().mean()
    )
    assert (
        "(4, 4, 1) and target (4, 4) broadcasts to (4, 4, 4): the loss compares 64 pairs instead of 16" in fault.message
    )


def test_weights_of_another_rank_are_found():
    weights = torch.rand(N, 1)
    (fault,) = found("broadcast", one_output(), loss=lambda output: (output[:, 0].exp() * weights).mean())
    assert fault.name == "mul"


def fourier(self, x):
    """Features of a learned coordinate at as many frequencies as there are examples."""
    return self.out(torch.sin(self.first(x) * TARGET))


@pytest.mark.parametrize(
    ("model", "loss"),
    [
        (one_output(), lambda output: ((output[:, 0] - TARGET) ** 2).mean()),
        (one_output(), lambda output: (output - output.t()).abs().mean()),
        (one_output(), lambda output: (output - output[:, 0]).abs().mean()),
        (one_output(), lambda output: (output[:, 0][:, None] - TARGET).abs().mean()),
        (one_output(), lambda output: (output - TARGET[None, :]).abs().mean()),
        (one_output(), lambda output: (output - torch.rand(N - 1)).abs().mean()),
        (one_output(), lambda output: (-((output - TARGET) ** 2) / 2).exp().mean()),
        (one_output(), lambda output: torch.exp(-(output - ROW).abs()).mean()),
        (one_output(), lambda output: (output.view(1, N) - TARGET.view(N, 1)).abs().mean()),
        (Parts(fourier, first=nn.Linear(8, 1), out=nn.Linear(N, 4)), torch.sum),
        (nn.MultiheadAttention(8, 2, batch_first=True), lambda output: output[0].sum()),
    ],
    ids=[
        "one shape",
        "pairs",
        "pairs of one",
        "axis added",
        "equal ranks",
        "other sizes",
        "kernel",
        "kernel of a row",
        "views",
        "features",
        "attention",
    ],
)
def test_distances_of_all_pairs_and_features_are_no_fault(model, loss):
    args = (torch.randn(2, 5, 8),) * 3 if isinstance(model, nn.MultiheadAttention) else ()
    assert found("broadcast", model, *args, loss=loss) == []


# ----------------------------------------------------------------------------------------------------------- softmax


def log_softmax_over_the_batch(output):
    chances = F.log_softmax(output, dim=0)
    return F.nll_loss(chances, CLASSES)


def softmax_over_the_batch(output):
    chances = torch.softmax(output, -2)
    return -torch.log(chances + 1e-9)[torch.arange(N), CLASSES].mean()


def gathered(output):
    chances = nn.Softmax(dim=0)(output)
    return -chances.gather(1, CLASSES[:, None]).mean()


def twice(output):
    chances = torch.softmax(output, 1).reshape(N, 4)
    return F.cross_entropy(chances, CLASSES)


def log_of_softmax(output):
    chances = torch.softmax(output, 1)
    return F.nll_loss(F.log_softmax(chances, 1), CLASSES)


def likelihood(output):
    chances = torch.softmax(output, 1)
    return F.nll_loss(chances.view(N, 4).float(), CLASSES)


def divergence(output):
    chances = torch.softmax(output, 1)
    return F.kl_div(chances, torch.full((N, 4), 0.25), reduction="batchmean")


def sigmoid_twice(output):
    chances = torch.sigmoid(output)
    return F.binary_cross_entropy_with_logits(chances, torch.ones(N, 4))


@pytest.mark.parametrize(
    ("loss", "name", "text"),
    [
        (log_softmax_over_the_batch, "log_softmax", "chances = F.log_softmax(output, dim=0)"),
        (likelihood, "nll_loss", "return F.nll_loss(chances.view(N, 4).float(), CLASSES)"),
        (divergence, "kl_div", 'return F.kl_div(chances, torch.full((N, 4), 0.25), reduction="batchmean")'),
        (softmax_over_the_batch, "softmax", "chances = torch.softmax(output, -2)"),
        (gathered, "softmax", "chances = nn.Softmax(dim=0)(output)"),
        (twice, "cross_entropy", "return F.cross_entropy(chances, CLASSES)"),
        (log_of_softmax, "log_softmax", "return F.nll_loss(F.log_softmax(chances, 1), CLASSES)"),
        (
            sigmoid_twice,
            "binary_cross_entropy_with_logits",
            "return F.binary_cross_entropy_with_logits(chances, torch.ones(N, 4))",
        ),
    ],
)
def test_a_wrong_softmax_is_found(loss, name, text):
    (fault,) = found("softmax", two_layers(), loss=loss)
    assert (fault.name, fault.text) == (name, text)


def distilled(output):
    teacher = torch.softmax(torch.randn(N, 4), 1)
    return F.cross_entropy(output, teacher) + F.kl_div(F.log_softmax(output, 1), teacher, reduction="batchmean")


def both_directions(output):
    scores = output @ output.t()
    pairs = torch.arange(N)
    return -torch.log_softmax(scores, 0)[pairs, pairs].mean() + F.cross_entropy(scores.t(), pairs)


def classes_first(output):
    return -torch.log_softmax(output.t(), 0)[CLASSES, torch.arange(N)].mean()


@pytest.mark.parametrize(
    "loss",
    [
        lambda output: F.cross_entropy(output, CLASSES),
        lambda output: F.nll_loss(torch.log_softmax(output, 1), CLASSES),
        lambda output: F.nll_loss(torch.softmax(output, 1).log(), CLASSES),
        lambda output: F.cross_entropy(torch.log_softmax(output, 1), CLASSES),
        lambda output: (torch.softmax(output, 0) * output).sum(),
        lambda output: torch.softmax(torch.softmax(output, 1), 0).square().sum(),
        lambda output: F.binary_cross_entropy_with_logits(output, torch.sigmoid(torch.randn(N, 4))),
        distilled,
        both_directions,
        classes_first,
    ],
    ids=[
        *(
            "cross entropy",
            "nll",
            "nll of a logarithm",
            "log_softmax twice",
            "pooling",
            "two axes",
            "a sigmoid as target",
        ),
        *("distilled", "both directions", "classes first"),
    ],
)
def test_a_right_softmax_is_no_fault(loss):
    assert found("softmax", two_layers(), loss=loss) == []


# --------------------------------------------------------------------------------------- not finite, and unregistered


def test_a_weight_that_is_not_finite_on_arrival_is_found_where_it_is_read():
    model = two_layers()
    model.second.weight.data[1, 2] = math.nan
    (fault,) = found("first_nonfinite", model)
    assert (fault.name, fault.text) == ("linear", "return self.second(hidden)")
    assert fault.message == "second.weight is not finite before the pass begins: 3.12 % NaN"


def listed():
    def forward(self, x):
        hidden = torch.relu(self.layers[0](x))
        return self.second(hidden)

    return Parts(forward, layers=[nn.Linear(8, 8)], second=nn.Linear(8, 4))


@pytest.mark.parametrize("how", ["record", "trace_model", "explore"])
def test_every_entry_point_finds_layers_in_a_plain_list(how):
    model, x = listed(), torch.randn(N, 8)
    if how == "record":
        faults = found("unregistered", model, x)
    elif how == "trace_model":
        faults = of_kind("unregistered", chainrule.trace_model(model, x, loss=torch.sum))
    else:
        faults = of_kind("unregistered", Tracer(Subject(model, (x,), loss=torch.sum)).trace())
    (fault,) = faults
    assert (fault.name, fault.text) == ("linear", "hidden = torch.relu(self.layers[0](x))")
    assert fault.message.startswith("this pass uses 2 parameters that are missing from model.parameters()")


def test_a_discriminator_a_loss_and_an_optimized_list_are_no_fault():
    generator, discriminator = two_layers(), nn.Linear(4, 1)
    loss = Parts(lambda self, output: (output * self.scale).sum(), scale=nn.Parameter(torch.ones(1)))
    shift = nn.Parameter(torch.zeros(1))
    assert found("unregistered", generator, loss=lambda output: loss(discriminator(output) + shift)) == []
    model = listed()
    held = SGD([*model.parameters(), *model.layers[0].parameters()], 0.1)
    assert found("unregistered", model, optimizer=held) == []
    image = nn.Parameter(torch.randn(N, 8))
    assert found("unregistered", two_layers(), image) == []


def test_parameters_that_stand_in_for_a_modules_own_are_no_fault():
    model, x = two_layers(), torch.randn(N, 8)
    others = {name: nn.Parameter(each.detach().clone()) for name, each in model.named_parameters()}
    with chainrule.record(model) as recording:
        (torch.func.functional_call(model, others, x) + model(x)).sum().backward()
    assert recording.trace.faults == ()


def test_parameters_under_vmap_have_their_gradient():
    model = Parts(
        lambda self, x: torch.vmap(lambda weight: x @ weight)(self.weight), weight=nn.Parameter(torch.ones(3, 8))
    )
    with chainrule.record(model) as recording:
        model(torch.randn(8)).sum().backward()
        model.zero_grad()
    assert of_kind("no_gradient", recording.trace) == []


@pytest.mark.long
def test_sharded_parameters_have_their_gradient():
    from torch import distributed
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    distributed.init_process_group("gloo", rank=0, world_size=1, store=distributed.HashStore())
    try:
        model = two_layers()
        fully_shard(model, mesh=init_device_mesh("cpu", (1,)))
        optimizer = SGD(model.parameters(), 0.1)
        steps = []
        for _ in range(2):
            with chainrule.record(model, optimizer=optimizer) as recording:
                model(torch.randn(N, 8)).sum().backward()
                optimizer.step()
            steps.append([fault.kind for fault in recording.trace.faults])
        assert steps == [[], ["leftover_gradient"]]
    finally:
        distributed.destroy_process_group()


def test_memory_that_is_overwritten_before_it_is_read_may_hold_anything():
    memory = torch.full((N, 8), math.nan)
    model = Parts(lambda self, x: self.out(memory.copy_(x)), out=nn.Linear(8, 4))
    assert found("first_nonfinite", model) == []
    memory.fill_(math.nan)
    with chainrule.record(model) as recording:
        model.out(memory).sum().backward()
    assert recording.trace.faults[0].message.startswith("input is the first tensor that is not finite: all NaN")


# ------------------------------------------------------------------------------------------------------ of a factory


def test_an_explored_model_is_checked_with_its_optimizer():
    """The pass runs on cleared gradients; those that the factory left count."""
    model, optimizer = after_a_step()
    optimizer.param_groups[0]["params"] = list(model.second.parameters())
    subject = Subject(model, (torch.randn(N, 8),), loss=torch.sum, optimizers=(optimizer,))
    for each in (subject, copied_subject(subject)):  # a copy has no gradients
        trace = Tracer(each).trace()
        assert trace.environment["optimizer"] == "SGD"
        (fault,) = of_kind("no_optimizer", trace)
        assert fault.message.startswith("first (2 parameters)")
        left = of_kind("leftover_gradient", trace)
        assert [fault.message[:21] for fault in left] == (["second (2 parameters)"] if each is subject else [])


@pytest.mark.long
def test_ten_thousand_parameters():
    """Enough for a loop over all pairs to be noticed."""
    model = Parts(
        lambda self, x: x * torch.stack(list(self.scales)).prod(0),
        scales=nn.ParameterList([torch.ones(1) for _ in range(10_000)]),
    )
    optimizer = SGD(list(model.parameters())[:5_000], 0.1)
    (fault,) = found("no_optimizer", model, torch.ones(1), optimizer=optimizer)
    assert "(5000 parameters)" in fault.message
