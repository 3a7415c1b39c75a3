import copy
import dataclasses
import json
import math

import numpy as np
import pytest
import torch
from lambda_modules import Parts
from torch import nn
from torch.nn import functional

import chainrule
from chainrule.diagnose.profile import (
    LayerProfile,
    drawn_stds,
    expectations,
    profile,
    theory,
)
from chainrule.dump.wire import dump_profile, dump_trace, load, theory_message
from chainrule.run import trace_spec
from chainrule.spec import ModelSpec
from chainrule.spec.keys import KEY_BY_NAME
from chainrule.theory.mean_field import moments
from chainrule.trace import record, trace_model

QUANTITIES = {"preactivation_std", "activation_mean", "activation_std", "gradient_std", "dead_fraction", "saturation"}


def spec_of(**values) -> ModelSpec:
    return ModelSpec.parse(values)


def profile_of(**values):
    return profile(trace_spec(spec_of(**values)))


def measured(layer: LayerProfile, quantity: str) -> float | None:
    if quantity in ("dead_fraction", "saturation"):
        return getattr(layer, quantity)
    name, statistic = quantity.rsplit("_", 1)
    return getattr(getattr(layer, name), statistic)


@pytest.mark.smoke
def test_profile_of_the_chapters_net():
    trace = trace_spec(spec_of())
    found = profile(trace)
    first, last = found.layers

    def statistics(name):
        return trace.statistics[trace.tensor_by_name[name].id]

    assert found.spec == trace.spec
    assert found.loss == trace.loss
    assert found.input == statistics("x")
    assert (first.index, first.name, last.index) == (1, "layer 1", 2)
    assert first.preactivation == statistics("l1")
    assert first.activation == statistics("l2")
    assert first.gradient == statistics("l2.g")
    assert first.weight == statistics("w1")
    assert first.weight_gradient == statistics("w1.g")
    assert first.bias_gradient == statistics("b1.g")
    assert last.preactivation == last.activation == statistics("out")
    assert first.gradient_to_weight_ratio == statistics("w1.g").std / statistics("w1").std
    assert first.dead_fraction == statistics("l2").dead_fraction
    assert last.dead_fraction is None
    assert first.saturation is None
    assert (first.health, last.health) == (None, None)
    assert (found.first_inf_layer, found.first_nan_layer) == (None, None)


@pytest.mark.parametrize("init", KEY_BY_NAME["init"].choices)
def test_weights_are_drawn_with_the_stated_std(init):
    found = profile_of(init=init, scale=1.7, widths="300,200,400,100", activation="tanh", batch=2)
    for layer in found.layers:
        # of so many elements the sample's std strays by less than 1 %
        assert layer.weight.std == pytest.approx(layer.weight_std, rel=0.02)
    assert [layer.weight_std for layer in found.layers] == list(drawn_stds(ModelSpec.parse(found.spec)))


@pytest.mark.smoke
def test_the_exploding_net_names_the_first_overflow():
    found = profile_of(preset="deep-exploding")
    assert math.isnan(found.loss)
    assert found.first_inf_layer == pytest.approx(38, abs=1)
    assert found.first_nan_layer == pytest.approx(39, abs=1)
    assert found.layers[-1].health == "non-finite"
    # The gradient starts from NaN, so no layer has a finite one.
    assert {layer.health for layer in found.layers} == {"non-finite"}
    assert found.layers[10].gradient_to_weight_ratio is None


def test_the_vanishing_net_vanishes():
    layers = profile_of(preset="deep-vanishing").layers
    assert layers[0].health is None or layers[0].health == "vanishing"
    assert {layer.health for layer in layers[1:]} == {"vanishing"}
    assert layers[-1].activation.zero_fraction == 1


def test_a_trace_without_a_spec_is_expected_to_follow_from_its_input():
    trace = trace_spec(spec_of(widths="100,80,60,10", loss="cross_entropy"))
    found = profile(dataclasses.replace(trace, spec=None))
    assert found.spec is None
    assert (found.advice, found.layers[0].weight_std) == (None, None)
    by_spec = profile(trace).layers
    for layer, said in zip(found.layers, by_spec, strict=True):
        assert layer.reason is said.reason is None
        for quantity, figure in said.expected.items():
            # x and the weights as they were measured are x and the weights as they were drawn, to a few percent
            if quantity in ("preactivation_std", "activation_std"):
                assert layer.expected[quantity].value == pytest.approx(figure.value, rel=0.1)
            assert layer.expected[quantity].band[0] <= measured(layer, quantity) <= layer.expected[quantity].band[1]
    assert [layer.health for layer in found.layers] == [layer.health for layer in by_spec]


class Stack(nn.Module):
    """Layers with and without a theory."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(50, 64)
        self.norm = nn.LayerNorm(64)
        self.up, self.down = nn.Linear(64, 128), nn.Linear(128, 64)
        self.head = nn.Linear(64, 1)

    def forward(self, ids):
        x = self.tokens(ids)
        x = x + self.down(functional.gelu(self.up(self.norm(x))))
        return self.head(functional.mish(x))


def traced(model=None, x=None):
    torch.manual_seed(0)
    model = Stack() if model is None else model()
    x = torch.randint(50, (16, 10)) if x is None else x
    return trace_model(model, x, loss=lambda out: out.square().mean())


def test_a_layer_without_a_theory_has_a_reason():
    found = profile(traced())
    assert [layer.name for layer in found.layers] == ["tokens", "norm", "up", "down", "head"]
    assert [layer.reason for layer in found.layers] == [
        "Embedding: theory does not cover this layer",
        "LayerNorm: theory does not cover this layer",
        None,
        None,
        "Linear: theory needs at least two units",
    ]
    _, norm, up, down, head = found.layers
    # A Linear reads the norm's output, so the gradient is expected.
    assert set(norm.expected) == {"gradient_std"}
    assert set(up.expected) == {
        *("preactivation_std", "activation_mean", "activation_std", "dead_fraction", "gradient_std")
    }
    # Two read what the second one puts out: the sum, and by it the head.
    assert set(down.expected) == {"preactivation_std", "activation_mean", "activation_std"}
    assert head.expected == {}
    for layer in (norm, up, down):
        for quantity, figure in layer.expected.items():
            assert figure.band[0] <= measured(layer, quantity) <= figure.band[1], (layer.name, quantity)


@pytest.mark.parametrize(
    ("make", "activation", "reason"),
    [
        (nn.ReLU, "relu", None),
        (nn.Tanh, "tanh", None),
        (nn.LeakyReLU, "leaky_relu", None),
        (
            lambda: nn.LeakyReLU(0.3),
            None,
            "leaky_relu with non-default arguments: theory covers only the preactivation of this layer",
        ),
        (nn.Mish, None, "mish: theory covers only the preactivation of this layer"),
        (nn.GELU, "gelu", None),
        (lambda: nn.GELU(approximate="tanh"), "gelu", None),
        (lambda: nn.Softmax(-1), "linear", None),
    ],
)
def test_the_activation_is_known_by_its_op(make, activation, reason):
    def model():
        return nn.Sequential(nn.Linear(40, 200), make(), nn.Linear(200, 10))

    first, _ = profile(traced(model, torch.randn(30, 40))).layers
    assert first.reason == reason
    assert ("activation_std" in first.expected) == (activation is not None)
    if activation not in (None, "linear"):
        std = first.expected["preactivation_std"].value
        assert first.expected["activation_std"].value == pytest.approx(moments(activation, std**2).std, rel=0.05)


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Conv1d(6, 32, 5, stride=3, padding=1), (9, 6, 31)),
        (nn.Conv1d(6, 32, 5, dilation=3, bias=False), (9, 6, 31)),
        (nn.Conv2d(6, 32, 5, padding="same", dilation=2), (9, 6, 9, 7)),
        (nn.Conv2d(6, 32, (3, 5), stride=(1, 2), padding=(0, 3), groups=2), (9, 6, 8, 9)),
        (nn.Conv3d(6, 30, 3, stride=2, padding=1, groups=3), (4, 6, 5, 4, 6)),
    ],
)
def test_as_many_products_are_counted_as_a_convolution_of_ones_sums(module, shape):
    before = {3: nn.Conv1d, 4: nn.Conv2d, 5: nn.Conv3d}[len(shape)](shape[1], shape[1], 1)
    trace = traced(lambda: nn.Sequential(before, module), torch.randn(shape))
    first, last = profile(trace).layers

    x = torch.ones(1, *shape[1:], dtype=torch.float64, requires_grad=True)
    ones = copy.deepcopy(module).double()
    with torch.no_grad():
        ones.weight.fill_(1)
        if ones.bias is not None:
            ones.bias.fill_(0)
    sums = ones(x)
    sums.sum().backward()

    weight, bias = (
        module.weight.detach().double(),
        0.0 if module.bias is None else module.bias.detach().double().var(correction=0),
    )
    into = trace.statistics[trace.layers[0].activation]
    variance = sums.mean() * weight.var(correction=0) * into.norm**2 / into.n + bias
    assert last.expected["preactivation_std"].value == pytest.approx(variance.sqrt().item(), rel=1e-6)
    back = trace.statistics[trace.layers[1].gradient]
    variance = x.grad.mean() * weight.var(correction=0) * back.norm**2 / back.n
    assert first.expected["gradient_std"].value == pytest.approx(variance.sqrt().item(), rel=1e-6)


class Projected(nn.Module):
    """A product of an input reshaped to two dimensions, as in transformers' Conv1D."""

    def __init__(self, units_in, units):
        super().__init__()
        self.weight, self.bias = nn.Parameter(0.1 * torch.randn(units_in, units)), nn.Parameter(torch.zeros(units))

    def forward(self, x):
        out = torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight)
        return out.view(*x.shape[:-1], -1)


def test_a_product_between_two_views_is_found():
    def model():
        return nn.Sequential(Projected(30, 60), nn.ReLU(), Projected(60, 20))

    first, last = profile(traced(model, torch.randn(8, 5, 30))).layers
    assert first.reason is last.reason is None
    assert first.expected["preactivation_std"].value == pytest.approx(math.sqrt(30 * 0.01), rel=0.1)
    for layer in (first, last):
        for quantity, figure in layer.expected.items():
            assert figure.band[0] <= measured(layer, quantity) <= figure.band[1], (layer.name, quantity)
    assert "gradient_std" in first.expected


def test_plain_functions_are_expected_too():
    torch.manual_seed(0)
    x, w, b = torch.randn(50, 30), torch.randn(30, 40, requires_grad=True), torch.randn(40, requires_grad=True)
    with record(leaves={"x": x, "w": w, "b": b}) as recording:
        (x @ w + b).relu().square().mean().backward()
    (layer,) = profile(recording.trace).layers
    assert layer.expected["preactivation_std"].value == pytest.approx(math.sqrt(30 + 1), rel=0.1)
    with record(leaves={"x": x, "w": w}) as recording:
        (w.t() @ x.t()).square().mean().backward()
    (layer,) = profile(recording.trace).layers
    assert (layer.expected, layer.reason) == ({}, "matmul: theory does not cover this layer")


def test_a_tensor_with_several_readers_has_no_expected_gradient():
    def forward(self, x):
        hidden = self.first(x)
        return self.left(hidden) * self.right(hidden)

    model = Parts(forward, first=nn.Linear(20, 30), left=nn.Linear(30, 10), right=nn.Linear(30, 10))
    first, *_ = profile(traced(lambda: model, torch.randn(16, 20))).layers
    assert set(first.expected) == {"preactivation_std", "activation_mean", "activation_std"}


def test_only_a_parameter_is_the_bias_of_a_product():
    residual = Parts(lambda self, x: x @ self.weight + x, weight=nn.Parameter(torch.randn(20, 20)))
    (layer,) = profile(traced(lambda: nn.Sequential(residual), torch.randn(16, 20))).layers
    assert (layer.expected, layer.reason) == ({}, "Parts: theory does not cover this layer")


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_a_unit_is_dead_if_it_is_for_every_input_of_the_batch(batch):
    def model():
        return nn.Sequential(nn.Linear(400, 50, bias=False), nn.ReLU(), nn.Linear(50, 10))

    first, _ = profile(traced(model, torch.randn(batch, 400))).layers
    # The preactivations of independent inputs are independent, and positive with probability ½.
    assert first.expected["dead_fraction"].value == pytest.approx(0.5**batch, rel=0.05)


class NewGELUActivation(nn.Module):
    """The code and the name of transformers."""

    def forward(self, x):
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))


def test_an_activation_of_several_ops_is_known_by_its_module():
    def model():
        return nn.Sequential(nn.Linear(40, 200), NewGELUActivation(), nn.Linear(200, 10))

    first, _ = profile(traced(model, torch.randn(30, 40))).layers
    assert first.reason is None
    std = first.expected["preactivation_std"].value
    assert first.expected["activation_std"].value == pytest.approx(moments("gelu", std**2).std, rel=0.05)
    # No op of it is one of which units are counted.
    assert first.dead_fraction is None
    assert "dead_fraction" not in first.expected


def test_a_user_s_layer_may_be_sick():
    def model():
        return nn.Sequential(*(module for _ in range(30) for module in (nn.Linear(64, 64), nn.Tanh())))

    def scaled():
        net = model()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter *= 0.1
        return net

    found = profile(chainrule.trace_model(scaled(), torch.randn(20, 64), loss=lambda out: out.square().mean()))
    assert found.input.std == pytest.approx(1, abs=0.1)
    assert {layer.health for layer in found.layers[:20]} == {"vanishing"}
    assert found.layers[-1].health is None
    # The size of token ids is no size to compare to.
    assert profile(traced()).input is None


@pytest.mark.parametrize(
    ("values", "verdicts"),
    [
        ({"widths": "100x21"}, {None}),
        ({"activation": "tanh", "init": "lecun_normal", "scale": 5 / 3, "widths": "100x11"}, {None}),
        (
            {"activation": "tanh", "init": "standard_normal", "widths": "100x4", "last_activation": True},
            {"saturated", None},
        ),
        ({"init": "zeros", "last_activation": True}, {"vanishing"}),
        ({"init": "zeros", "activation": "linear"}, {"vanishing"}),
        ({"init": "standard_normal", "widths": "100,400,400", "activation": "linear"}, {None, "exploding"}),
    ],
)
def test_verdicts_on_real_nets(values, verdicts):
    assert {layer.health for layer in profile_of(**values).layers} == verdicts


@pytest.mark.parametrize(
    "values",
    [
        {"widths": "100x13"},
        {"widths": "100x13", "init": "standard_normal", "scale": 0.1, "activation": "linear"},
        {"widths": "50x9,3", "activation": "tanh", "init": "lecun_normal", "scale": 1.327, "bias_std": 0.2236},
        {"widths": "50x9", "activation": "gelu", "init": "lecun_normal", "scale": 1.5335, "style": "module"},
        {"widths": "60,40,20,10", "init": "torch_default", "last_activation": True},
        {"widths": "50x5", "dtype": "bfloat16", "style": "functions"},
        {"widths": "60,60,30,80", "init": "orthogonal", "activation": "selu"},
    ],
)
def test_measured_figures_lie_in_the_expected_bands(values):
    inside = {}
    for seed in range(10):
        for layer in profile_of(**values, seed=seed).layers:
            for quantity, figure in layer.expected.items():
                low, high = figure.band
                inside.setdefault(quantity, []).append(low <= measured(layer, quantity) <= high)
    assert {"preactivation_std", "activation_mean", "activation_std", "gradient_std"} <= set(inside) <= QUANTITIES
    shares = {quantity: np.mean(held) for quantity, held in inside.items()}
    assert min(shares.values()) >= 0.75, shares
    assert np.mean(list(shares.values())) >= 0.88, shares


@pytest.mark.smoke
def test_figures_that_the_dtype_cannot_hold_are_left_out():
    exploding = {"widths": "100x51", "activation": "linear", "init": "standard_normal"}
    for dtype, last in (("float16", 4), ("float32", 37), ("float64", 50)):
        held = [bool(layer) for layer in expectations(spec_of(**exploding, dtype=dtype))]
        assert sum(held) == pytest.approx(last, abs=1)
        assert held == sorted(held, reverse=True)
    # Values up to 10⁴ fit, and gradients from 10⁵ on do not.
    deep = expectations(
        spec_of(widths="100x5,1", init="standard_normal", activation="linear", batch=1, dtype="float16")
    )
    assert ["gradient_std" in layer for layer in deep] == [False] * 4 + [True]
    assert all("preactivation_std" in layer for layer in deep)


LAYER_KEYS = [
    *("index", "name", "preactivation", "activation", "gradient", "weight", "weight_gradient", "bias_gradient"),
    *("gradient_to_weight_ratio", "dead_fraction", "saturation", "health", "weight_std", "expected"),
]


def test_a_reason_stands_only_where_there_is_one():
    trace = traced()
    dump = json.loads(dump_profile(profile(trace)))
    assert [list(layer) == [*LAYER_KEYS, "reason"] for layer in dump["layers"]] == [True, True, False, False, True]
    assert dump["layers"][0]["reason"] == "Embedding: theory does not cover this layer"
    assert dump["rules"]["expected"]["preactivation_std"]["rule"].startswith("std² = n Var(W) E[x²]")
    message = json.loads(theory_message(theory(trace), 7))
    for told, layer in zip(message["theory"]["layers"], dump["layers"], strict=True):
        assert told == {key: layer[key] for key in told}
        assert ("reason" in told) == ("reason" in layer)
    assert dump_profile(profile(load(dump_trace(trace)))) == dump_profile(profile(trace))
