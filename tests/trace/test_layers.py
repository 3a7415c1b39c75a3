import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from lambda_modules import Parts
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from chainrule.run import trace_spec
from chainrule.spec import ModelSpec
from chainrule.trace import find_layers, record, trace_model


def square_mean(out):
    return out.square().mean()


def weights(*shape):
    return nn.Parameter(torch.randn(shape))


def traced(model, *shape):
    return trace_model(model, torch.randn(shape or (5, 4)), loss=square_mean)


def names_of(trace, part="name"):
    """The names of the rows, or those of their tensors."""
    if part == "name":
        return [layer.name for layer in trace.layers]
    ids = [getattr(layer, part) for layer in trace.layers]
    return [None if each is None else trace.tensor_by_id[each].name for each in ids]


@pytest.mark.smoke
def test_the_rows_of_a_net():
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 16, 5), nn.Tanh(), nn.Linear(5, 2)
    )
    trace = traced(model, 8, 3, 6, 6)
    assert [layer.index for layer in trace.layers] == [1, 2, 3, 4]
    assert names_of(trace) == ["0", "2", "4", "6"]
    assert names_of(trace, "preactivation") == ["0.conv2d", "2.batch_norm", "4.linear", "6.linear"]
    assert names_of(trace, "activation") == ["1.relu", "2.batch_norm", "5.tanh", "6.linear"]
    assert names_of(trace, "gradient") == ["1.relu.g", "2.batch_norm.g", "5.tanh.g", "6.linear.g"]
    assert names_of(trace, "weight") == ["0.weight", None, "4.weight", "6.weight"]
    assert names_of(trace, "weight_gradient") == ["0.weight.g", None, "4.weight.g", "6.weight.g"]
    assert names_of(trace, "bias") == ["0.bias", "2.bias", "4.bias", "6.bias"]
    assert names_of(trace, "bias_gradient") == ["0.bias.g", "2.bias.g", "4.bias.g", "6.bias.g"]


def test_an_activation_is_the_only_reader_of_its_layer():
    def forward(self, x):
        gate, both = self.gate(x), self.both(x)
        return self.logits(F.silu(gate) * (F.relu(both) + both)).softmax(-1)

    trace = traced(Parts(forward, gate=nn.Linear(4, 4), both=nn.Linear(4, 4), logits=nn.Linear(4, 3)))
    assert names_of(trace) == ["gate", "both", "logits"]
    # A softmax weighs values against one another, so the layer's output are the logits.
    assert names_of(trace, "activation") == ["silu", "both.linear", "logits.linear"]


def new_gelu(_, x):
    return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * torch.pow(x, 3))))


@pytest.mark.parametrize(
    ("inside", "activation"),
    [(new_gelu, "1.mul_3"), (lambda _, x: 2 * x, "0.linear"), (lambda _, x: torch.tanh(x - x.mean()), "0.linear")],
    ids=["gelu", "not bent", "not elementwise"],
)
def test_an_activation_may_be_a_module_of_several_ops(inside, activation):
    trace = traced(nn.Sequential(nn.Linear(4, 4), Parts(inside), nn.Linear(4, 2)))
    assert names_of(trace) == ["0", "2"]
    assert names_of(trace, "activation")[0] == activation


def test_a_module_of_several_ops_must_read_its_layer_once():
    def forward(self, x):
        hidden = self.first(x)
        return self.last(self.gelu(hidden)) + self.gelu(hidden)

    trace = traced(Parts(forward, first=nn.Linear(4, 4), gelu=Parts(new_gelu), last=nn.Linear(4, 4)))
    assert names_of(trace, "activation") == ["first.linear", "last.linear"]


def test_an_activation_in_place():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(64, 2))
    trace = traced(model, 2, 3, 6, 6)
    (first, _) = trace.layers
    assert first.preactivation != first.activation
    assert trace.statistics[first.preactivation].min < 0 <= trace.statistics[first.activation].min


def test_a_layer_that_has_its_activation_inside():
    dense = Parts(lambda self, x: torch.tanh(x @ self.w + self.b), w=weights(4, 3), b=nn.Parameter(torch.zeros(3)))
    trace = traced(nn.Sequential(dense, nn.Linear(3, 1)))
    assert names_of(trace) == ["0", "1"]
    assert names_of(trace, "preactivation") == ["0.add", "1.linear"]
    assert names_of(trace, "activation") == ["0.tanh", "1.linear"]
    assert names_of(trace, "weight") == ["0.w", "1.weight"]
    assert names_of(trace, "bias") == ["0.b", "1.bias"]


@pytest.mark.parametrize(
    "module", [nn.LSTM(4, 6, num_layers=2, batch_first=True), nn.GRU(4, 6, batch_first=True)], ids=["lstm", "gru"]
)
def test_a_recurrent_module_is_one_row(module):
    trace = traced(Parts(lambda self, x: self.head(self.body(x)[0][:, -1]), body=module, head=nn.Linear(6, 2)), 3, 5, 4)
    assert names_of(trace) == ["body", "head"]
    body = trace.layers[0]
    assert trace.tensor_by_id[body.preactivation].shape == (3, 5, 6)
    largest = max(parameter.numel() for parameter in module.parameters())
    assert trace.tensor_by_id[body.weight].shape in {
        tuple(w.shape) for w in module.parameters() if w.numel() == largest
    }
    assert trace.tensor_by_id[body.bias].name == "body.bias_ih_l0"


def test_the_output_of_a_row_is_the_one_that_others_read():
    lstm = nn.LSTM(4, 6, batch_first=True)
    trace = traced(Parts(lambda self, x: self.head(self.body(x)[1][0][0]), body=lstm, head=nn.Linear(6, 2)), 3, 5, 4)
    assert trace.tensor_by_id[trace.layers[0].activation].shape == (1, 3, 6)
    assert trace.layers[0].gradient is not None


def test_an_embedding_and_a_product_with_its_weights():
    def forward(self, ids):
        return self.body(self.tokens(ids)) @ self.tokens.weight.T

    model = Parts(forward, tokens=nn.Embedding(11, 6), body=nn.Linear(6, 6))
    trace = trace_model(model, torch.arange(10).view(2, 5), loss=square_mean)
    assert names_of(trace) == ["tokens", "body", "tokens.weight"]
    assert names_of(trace, "weight") == ["tokens.weight", "body.weight", "tokens.weight"]
    assert trace.layers[0].weight_gradient == trace.layers[2].weight_gradient is not None
    assert trace.tensor_by_id[trace.layers[2].activation].shape == (2, 5, 11)


def test_a_parametrized_weight_belongs_to_its_module():
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 3)), nn.ReLU(), nn.Linear(3, 1))
    trace = traced(model)
    assert names_of(trace) == ["0", "2"]
    assert names_of(trace, "weight")[0] == "0.parametrizations.weight.original1"
    assert names_of(trace, "activation")[0] == "1.relu"


@pytest.mark.parametrize("between", [lambda x: x, torch.tanh, torch.square])
def test_every_call_is_a_row(between):
    def forward(self, x):
        for _ in range(3):
            x = between(self.step(x))
        return x

    trace = traced(Parts(forward, step=nn.Linear(4, 4)))
    assert names_of(trace) == ["step", "step (2)", "step (3)"]
    assert len({layer.preactivation for layer in trace.layers}) == 3
    assert {trace.tensor_by_id[layer.weight].name for layer in trace.layers} == {"step.weight"}
    assert all(trace.tensor_by_id[layer.gradient].gradient_of == layer.activation for layer in trace.layers)


def test_a_loop_inside_a_module_is_one_call():
    def forward(self, x):
        for _ in range(3):
            x = torch.tanh(x @ self.w)
        return x

    trace = traced(nn.Sequential(Parts(forward, w=weights(4, 4)), nn.Linear(4, 1)))
    assert names_of(trace) == ["0", "1"]
    assert names_of(trace, "activation") == ["0.tanh_2", "1.linear"]


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_an_op_that_a_checkpoint_computes_again_is_no_row(use_reentrant):
    def forward(self, x):
        return self.last(checkpoint(self.block, self.first(x), use_reentrant=use_reentrant))

    block = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    trace = traced(Parts(forward, first=nn.Linear(4, 4), block=block, last=nn.Linear(4, 1)))
    assert names_of(trace) == ["first", "block.0", "block.2", "last"]
    assert all(layer.gradient is not None and layer.weight_gradient is not None for layer in trace.layers)


def test_gradients_are_those_of_the_first_of_two_backward_passes():
    model = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1))
    with record(model) as recording:
        loss = model(torch.randn(5, 4)).square().mean()
        loss.backward(retain_graph=True)
        loss.backward()
    assert {"1.tanh.g", "1.tanh.g 2"} <= recording.trace.tensor_by_name.keys()
    assert names_of(recording.trace, "gradient") == ["1.tanh.g", "2.linear.g"]


def test_a_module_that_adds_the_bias_is_part_of_the_product_before_it():
    shift = Parts(lambda self, x: x + self.bias, bias=nn.Parameter(torch.zeros(3)))
    model = Parts(
        lambda self, x: self.head(self.shift(x @ self.weight)), weight=weights(4, 3), shift=shift, head=nn.Linear(3, 1)
    )
    trace = traced(model)
    assert names_of(trace) == ["weight", "head"]
    assert names_of(trace, "preactivation") == ["shift.add", "head.linear"]
    assert names_of(trace, "bias") == ["shift.bias", "head.bias"]


def test_the_output_of_a_layer_is_floating_point():
    def route(self, x):
        logits = x @ self.weight
        return logits, logits.argmax(1)

    def forward(self, x):
        logits, chosen = self.router(x)
        return self.table(chosen) * logits

    trace = traced(Parts(forward, router=Parts(route, weight=weights(4, 3)), table=nn.Embedding(3, 3)))
    assert names_of(trace, "preactivation") == ["router.matmul", "table.embedding"]


def test_plain_functions():
    x, y = torch.randn(6, 4), torch.randn(6, 1)
    w1, b1, w2 = (torch.randn(shape, requires_grad=True) for shape in ((4, 5), (5,), (5, 1)))
    with record(leaves={"x": x, "y": y, "w1": w1, "b1": b1, "w2": w2}) as recording:
        (((x @ w1 + b1).relu() @ w2 - y) ** 2).mean().backward()
    trace = recording.trace
    assert names_of(trace) == ["w1", "w2"]
    assert names_of(trace, "preactivation") == ["add", "matmul_1"]
    assert names_of(trace, "activation") == ["relu", "matmul_1"]
    assert names_of(trace, "bias") == ["b1", None]
    assert names_of(trace, "gradient") == ["relu.g", "matmul_1.g"]


def test_one_module_that_is_the_whole_model():
    trace = traced(nn.Linear(4, 2))
    assert names_of(trace) == ["Linear"]
    assert names_of(trace, "weight") == ["weight"]


def test_custom_functions_are_rows(functions):
    def forward(self, x):
        return self.second(functions.numpy_sine.apply(functions.cube.apply(self.first(x))))

    trace = traced(Parts(forward, first=nn.Linear(4, 4), second=nn.Linear(4, 2)))
    assert names_of(trace) == ["first", "Cube", "NumpySine", "second"]
    assert names_of(trace, "weight") == ["first.weight", None, None, "second.weight"]
    first, cube, sine, _ = trace.layers
    assert first.activation == first.preactivation
    assert trace.statistics[sine.activation].max <= 1
    assert all(trace.tensor_by_id[each.gradient].gradient_of == each.activation for each in (cube, sine))


def test_a_module_around_a_function_that_weighs():
    class Weigh(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        def backward(ctx, grad_output):
            x, w = ctx.saved_tensors
            return grad_output @ w.t(), x.t() @ grad_output

    layer = Parts(lambda self, x: Weigh.apply(x, self.w), w=weights(4, 3))
    trace = traced(nn.Sequential(layer, nn.ReLU(), nn.Linear(3, 1)))
    assert names_of(trace) == ["0.Weigh", "2"]
    assert names_of(trace, "weight") == ["0.w", "2.weight"]
    assert names_of(trace, "activation") == ["1.relu", "2.linear"]
    assert names_of(trace, "weight_gradient") == ["0.w.g", "2.weight.g"]


def test_a_pass_that_breaks_has_the_rows_so_far():
    trace = traced(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(5, 1)))
    assert trace.error is not None
    assert names_of(trace) == ["0"]
    assert trace.layers[0].gradient is None


def test_without_weights_there_are_no_layers():
    assert traced(torch.tanh).layers == ()


@pytest.mark.parametrize("style", ["functions", "classes", "layer_function", "autograd_function", "module"])
def test_the_chapters_nets_have_the_rows_of_their_spec(style):
    trace = trace_spec(ModelSpec.parse({"widths": "6,5,4,2", "style": style, "batch": 7}))
    functions = {module.path for module in trace.modules if style == "autograd_function" and module.parent}
    found = find_layers(trace, () if style != "autograd_function" else functions - {"layers"})
    weighing = [layer for layer in found if layer.weight is not None]
    for own, said in zip(weighing, trace.layers, strict=True):
        assert (own.weight, own.weight_gradient) == (said.weight, said.weight_gradient)
        assert (own.bias, own.bias_gradient) == (said.bias, said.bias_gradient)
        assert own.preactivation == said.preactivation


def test_layers_are_looked_for_unless_find_layers_is_false():
    with record(nn.Linear(2, 2), find_layers=False) as recording:
        nn.functional.linear(torch.randn(1, 2), torch.randn(2, 2, requires_grad=True)).sum().backward()
    assert recording.trace.layers == ()
