"""µP: table 3 of arXiv 2203.03466, against torch.optim with a group per parameter, and by the coordinate check."""

import math

import numpy as np
import pytest
import torch

from chainrule.build import Training, build_model, weight_variances
from chainrule.spec import ModelSpec
from chainrule.sweeps.run import sweep

SGD = {"sgd": {}, "momentum": {"momentum": 0.9}, "nesterov": {"momentum": 0.9, "nesterov": True}}


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "nesterov", "adam", "adamw"])
def test_a_training_is_that_of_torch_with_the_rates_of_the_table(optimizer):
    spec = ModelSpec.from_query(
        f"widths=10,128,128,3&batch=12&activation=tanh&bias_std=0.3&dtype=float64&style=module&lr=0.003&weight_decay=0.1"
        f"&parametrization=mup&optimizer={optimizer}&step=5"
    )
    drawn = build_model(spec.replace(step=0, parametrization="standard"))
    leaves = {name: leaf.detach().clone().requires_grad_() for name, leaf in drawn.leaves.items()}
    with torch.no_grad():
        leaves["w3"] /= math.sqrt(128 / 64)
    is_sgd = optimizer in SGD
    rates = dict.fromkeys(("w1", "b1", "b2"), 2.0 if is_sgd else 1.0) | {
        "w3": 0.5,
        "b3": 1.0,
        "w2": 1.0 if is_sgd else 0.5,
    }
    groups = [{"params": [leaves[name]], "lr": 0.003 * rate} for name, rate in rates.items()]
    kind = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}.get(optimizer, torch.optim.SGD)
    rule = kind(groups, weight_decay=0.1, **SGD.get(optimizer, {}))
    for _ in range(5):
        hidden = torch.tanh(leaves["x"] @ leaves["w1"].T + leaves["b1"])
        hidden = torch.tanh(hidden @ leaves["w2"].T + leaves["b2"])
        out = hidden @ leaves["w3"].T + leaves["b3"]
        rule.zero_grad()
        torch.nn.functional.mse_loss(out, leaves["y"].detach()).backward()
        rule.step()
    trained = Training(spec)
    trained.go_to(5)
    for name in rates:
        torch.testing.assert_close(trained.model.leaves[name].detach(), leaves[name].detach(), rtol=1e-9, atol=1e-12)


def test_at_the_base_width_it_is_the_standard_parametrization():
    query = "widths=5,64,64,2&batch=8&step=3&optimizer=adam&parametrization="
    nets = []
    for kind in ("mup", "standard"):
        net = Training(ModelSpec.from_query(query + kind))
        nets.append(net.go_to(3))
    for name in ("w1", "w2", "w3", "b1"):
        assert torch.equal(nets[0].leaves[name], nets[1].leaves[name])


def test_theory_knows_the_scale_of_the_last_layer():
    spec = ModelSpec.from_query("widths=10,256,256,3&init=lecun_normal&parametrization=mup")
    assert [variance for variance, _ in weight_variances(spec)] == pytest.approx([1, 1, 64 / 256])


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_coordinates_are_flat_in_the_width(optimizer):
    """The coordinate check of the paper (appendix D.1): after some steps mean |x| does not depend on the width."""
    lr = 0.1 if optimizer == "sgd" else 0.02
    spec = "widths=16,64,64,1&batch=32&activation=tanh&init=lecun_normal&step=5"
    slopes = {}
    for kind in ("standard", "mup"):
        found = sweep(
            f"{spec}&optimizer={optimizer}&lr={lr}&parametrization={kind}",
            ["width=32,64,128,256,512"],
            seeds=6,
            measure="activation_size:output",
        )
        sizes = found.values.mean(-1)
        slopes[kind] = np.polyfit(np.log([32, 64, 128, 256, 512]), np.log(sizes), 1)[0]
    assert slopes["standard"] > 0.2
    assert abs(slopes["mup"]) < 0.5 * slopes["standard"]
