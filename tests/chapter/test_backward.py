import inspect

import pytest
import torch.nn.functional as F  # noqa: N812

from chainrule.chapter.backward import PAGE, STAGES
from chainrule.chapter.reference_model import draw_model
from chainrule.foundations import layers
from chainrule.run import trace_spec
from chainrule.spec import ModelSpec

SMALL = {"batch": "6", "n_in": "5", "hidden": "4", "n_out": "3"}


def gradients_of(answer):
    return {gradient["name"]: gradient for stage in answer["stages"] for gradient in stage["gradients"]}


@pytest.mark.smoke
@pytest.mark.parametrize("given", [{}, SMALL, {"batch": "1"}, {"batch": "1", "n_out": "3"}])
def test_every_gradient_agrees_with_autograd(given):
    found = gradients_of(PAGE.ask(given))
    assert list(found) == ["out.g", "l2.g", "w2.g", "b2.g", "l1.g", "inp.g", "w1.g", "b1.g"]
    for name, gradient in found.items():
        largest = max(abs(gradient["min"]), abs(gradient["max"]))
        assert gradient["autograd_difference"] <= 2e-6 * largest + 1e-12, name


def test_the_gradients_are_the_explorer_s():
    found = gradients_of(PAGE.ask({"seed": "7"}))
    trace = trace_spec(ModelSpec.parse({"seed": "7", "style": "functions"}))
    by_name = {f"{trace.tensor_by_id[t.gradient_of].name}.g": t for t in trace.tensors if t.gradient_of is not None}
    for name, gradient in found.items():
        row = trace.statistics[by_name[name.replace("inp.g", "x.g")].id]
        assert gradient["std"] == pytest.approx(row.std, rel=1e-5), name
        assert gradient["zeros"] == round(row.zero_fraction * row.n), name


def test_every_quoted_line_is_in_its_function():
    for stage in STAGES:
        function = getattr(layers, stage.listing)
        lines = [line.strip() for line in inspect.getsource(function).splitlines()]
        assert stage.call in [line.strip() for line in inspect.getsource(layers.forward_and_backward).splitlines()]
        for _, line, _ in stage.rules:
            assert line in lines


def test_every_gradient_has_its_derivation():
    answer = PAGE.ask(SMALL)
    derivations = answer["derivations"]
    assert {gradient["derivation"] for gradient in gradients_of(answer).values()} <= set(derivations)
    assert all(each["mathml"].startswith("<math") for made in derivations.values() for each in made["equations"])
    assert [each["says"] for each in derivations["square"]["equations"]] == ["diff(sx**2, sx)"]


@pytest.mark.parametrize("layer", ["1", "2"])
def test_one_product_fits_where_the_sizes_differ(layer):
    trials = PAGE.ask({**SMALL, "layer": layer})["trials"]
    assert (trials["w"]["fitting"], trials["w"]["right"]) == (1, ["inp.t() @ out.g"])
    assert (trials["inp"]["fitting"], trials["inp"]["right"]) == (1, ["out.g @ w.t()"])
    refused = next(each for each in trials["w"]["trials"] if each["code"] == "inp @ out.g")
    assert "shapes cannot be multiplied" in refused["error"]
    transposes = [each["code"] for each in trials["w"]["trials"] if each["is_transpose"]]
    assert transposes == ["out.g.t() @ inp"]


def test_all_fit_and_one_is_right_where_the_sizes_are_equal():
    trials = PAGE.ask({"batch": "4", "n_in": "4", "hidden": "4", "n_out": "4"})["trials"]
    for tried, right in (("w", "inp.t() @ out.g"), ("inp", "out.g @ w.t()")):
        assert trials[tried]["fitting"] == 8
        assert trials[tried]["right"] == [right]


def test_the_squeeze_trap():
    x, targ, *parameters = draw_model(200, 100, 50, 1, 42)
    out = layers.model(x, *parameters)
    traps = PAGE.ask({})["traps"]
    assert traps["unsqueezed_shape"] == [200, 200]
    assert traps["loss"] == pytest.approx(F.mse_loss(out.squeeze(1), targ).item(), rel=1e-6)
    assert traps["unsqueezed_loss"] == pytest.approx((out - targ).pow(2).mean().item(), rel=1e-6)
    assert PAGE.ask({"batch": "1"})["traps"]["squeezed"] == []


@pytest.mark.parametrize("n_out", [1, 3])
def test_the_printed_gradient_is_n_out_times_too_large(n_out):
    over_batch, bare = PAGE.ask({"n_out": str(n_out)})["traps"]["gradients"]
    assert over_batch["times_too_large"] == pytest.approx(n_out, rel=1e-5)
    assert bare["fits"] == (n_out == 1)
