"""A stack computes what each of its nets computes alone."""

import pytest
import torch

from chainrule.build import Training
from chainrule.build.draws import draw_batch
from chainrule.build.stack import Stack
from chainrule.spec import ModelSpec

QUERIES = [
    "widths=6,5,4,3&activation=tanh&step=20&batch=8",
    "widths=6,5,1&step=20&batch=8&bias=false",
    "widths=5x4&step=5&init=torch_default&optimizer=adamw&weight_decay=0.1&batch=64&activation=gelu",
    "widths=5,4,3&step=5&init=orthogonal&optimizer=adam&loss=cross_entropy&batch=7&last_activation=true",
    "widths=2,8,8,1&data=moons&step=10&optimizer=nesterov&batch=16&activation=elu",
    "widths=64,12,10&data=digits&step=10&optimizer=momentum&loss=cross_entropy&batch=16&activation=sigmoid",
    "widths=1,50,1&batch=64&step=20",  # 1 × batch matrices
    "widths=64,1&init=orthogonal&batch=1&step=3&loss=mse",
    "widths=2,31,2&parametrization=mup&step=3&batch=16",
    "widths=20,100,100,1&step=4&optimizer=adam&batch=50&activation=leaky_relu",
]


def nets(query):
    """A trained stack of four nets, and each net trained alone; both after their backward pass, in one thread."""
    spec = ModelSpec.from_query(query)
    seeds = [1, 2, 1, 3]
    values = {"scale": [0.5, 1.0, 1.3, 1.7], "lr": [0.01, 0.02, 0.005, 0.001], "weight_decay": [0.0, 0.1, 0.2, 0.3]}
    if spec.bias and spec.init != "torch_default":
        values["bias_std"] = [0.0, 0.1, 0.2, 0.3]
    stack = Stack(spec, seeds, values)
    stack.train(spec.step)
    losses = stack.forward()
    stack.backward()
    for net, seed in enumerate(seeds):
        alone = Training(spec.replace(seed=seed, **{key: column[net] for key, column in values.items()}))
        model = alone.go_to(spec.step)
        loss = model.forward()
        model.backward(loss)
        found, expected = [losses[net]], [loss]
        for index, layer in enumerate(model.layers):
            found += [stack.weights[index][net], stack.weight_gradients[index][net]]
            expected += [model.leaves[layer.weight], model.leaves[layer.weight].g]
            if layer.bias is not None:
                found += [stack.biases[index][net, 0], stack.bias_gradients[index][net, 0]]
                expected += [model.leaves[layer.bias], model.leaves[layer.bias].g]
        yield found, expected


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("query", QUERIES)
def test_a_net_has_the_same_bits_in_a_stack_and_alone(query, dtype):
    for found, expected in nets(f"{query}&dtype={dtype}"):
        for here, there in zip(found, expected, strict=True):
            assert torch.equal(here, there)


def test_the_last_elements_of_an_exp_may_differ_in_their_last_bits():
    for found, expected in nets("widths=5x4&step=5&optimizer=adam&batch=7&activation=gelu&dtype=float64"):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_each_net_sees_the_data_of_its_own_seed():
    spec = ModelSpec.from_query("widths=2,8,1&data=moons&batch=16")
    stack = Stack(spec, range(20), {})
    for seed, x in enumerate(stack.x):
        assert torch.equal(x, draw_batch(spec.replace(seed=seed))[0])


def test_a_stack_knows_the_accuracy_of_each_net():
    spec = ModelSpec.from_query("widths=2,8,2&data=moons&loss=cross_entropy&batch=64&optimizer=adam&lr=0.01")
    stack = Stack(spec, [1, 2], {})
    stack.train(200)
    from chainrule.training.evaluation import score_held_out

    for seed, accuracy in zip([1, 2], stack.accuracy().tolist(), strict=True):
        alone = Training(spec.replace(seed=seed))
        alone.go_to(200)
        # One of 500 samples may be on the border.
        assert accuracy == pytest.approx(score_held_out(alone).accuracy, abs=1 / 500)
        assert accuracy > 0.8
