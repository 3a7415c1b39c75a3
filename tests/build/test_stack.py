"""A stack computes what each of its nets computes alone."""

import pytest
import torch

from chainrule.build import Training
from chainrule.build.stack import Stack
from chainrule.spec import ModelSpec

QUERIES = [
    "widths=6,5,4,3&activation=tanh&step=20&batch=8",
    "widths=6,5,1&step=20&batch=8&bias=false",
    "widths=5x4&step=5&init=torch_default&optimizer=adamw&weight_decay=0.1&batch=7&activation=gelu",
    "widths=5,4,3&step=5&init=orthogonal&optimizer=adam&loss=cross_entropy&batch=7&last_activation=true",
    "widths=2,8,8,1&data=moons&step=10&optimizer=nesterov&batch=16&activation=elu",
    "widths=64,12,10&data=digits&step=10&optimizer=momentum&loss=cross_entropy&batch=16&activation=sigmoid",
]


@pytest.mark.parametrize("query", QUERIES)
def test_a_net_trains_in_a_stack_as_it_trains_alone(query):
    spec = ModelSpec.from_query(f"{query}&dtype=float64")
    seeds = [1, 2, 1, 3]
    values = {"scale": [0.5, 1.0, 1.5, 2.0], "lr": [0.01, 0.02, 0.005, 0.001], "weight_decay": [0.0, 0.1, 0.2, 0.3]}
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
        torch.testing.assert_close(losses[net], loss.detach(), rtol=1e-10, atol=0)
        for index, layer in enumerate(model.layers):
            pairs = [(stack.weights[index][net], stack.weight_gradients[index][net], layer.weight)]
            if layer.bias is not None:
                pairs.append((stack.biases[index][net, 0], stack.bias_gradients[index][net, 0], layer.bias))
            for found, gradient, name in pairs:
                torch.testing.assert_close(found, model.leaves[name], rtol=1e-10, atol=1e-12)
                torch.testing.assert_close(gradient, model.leaves[name].g, rtol=1e-9, atol=1e-12)


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
