"""A net that takes one scale after another is, bit for bit, the net that is built anew."""

import gc
import weakref

import pytest
import torch
from hypothesis import given, settings
from spec_strategies import changing_specs

from chainrule.build import RescaledNet, build_model, draws, rescaled
from chainrule.spec import ModelSpec

STYLES = ("functions", "classes", "layer_function", "autograd_function", "module")


def leaves_are_equal(ours, fresh):
    assert list(ours.leaves) == list(fresh.leaves)
    for name, leaf in fresh.leaves.items():
        found = ours.leaves[name]
        assert (found.dtype, found.requires_grad, found.stride()) == (leaf.dtype, leaf.requires_grad, leaf.stride()), (
            name
        )
        assert torch.equal(found, leaf), name


@given(changing_specs())
@settings(max_examples=60)
def test_the_leaves_equal_those_of_build_model(specs):
    net = RescaledNet()
    for spec in specs:
        ours = net.build(spec)
        leaves_are_equal(ours, build_model(spec))
        # A pass leaves gradients behind; the next net must not see them.
        ours.backward(ours.forward())


@pytest.mark.smoke
@pytest.mark.parametrize("elements", [0, draws.CACHED_ELEMENTS])
def test_a_new_scale_draws_nothing(elements, monkeypatch):
    monkeypatch.setattr(draws, "CACHED_ELEMENTS", elements)
    drawn = []
    monkeypatch.setattr(draws, "generator_for", lambda _seed, name: drawn.append(name) or torch.Generator())
    net = RescaledNet()
    spec = ModelSpec.parse({"widths": "9,8,7", "seed": 987654321})
    net.build(spec)
    assert sorted(drawn) == ["w1", "w2", "x", "y"]
    drawn.clear()
    for scale in (2.0, 3.0, 0.5):
        net.build(spec.replace(scale=scale))
    # Before they were multiplied they are needed once more, unless a cache has them.
    assert drawn == (["w1", "w2"] if elements == 0 else [])
    drawn.clear()
    net.build(spec.replace(seed=987654322))
    assert sorted(drawn) == ["w1", "w2", "x", "y"]


@pytest.mark.parametrize("style", STYLES)
def test_only_the_memory_of_a_models_leaves_is_kept(style):
    net = RescaledNet()
    built = net.build(ModelSpec(style=style))
    built.backward(built.forward())
    leaf = built.leaves["x"]
    kept = [weakref.ref(leaf.grad if built.autograd else leaf.g)]
    if style != "module":
        kept += [weakref.ref(leaf), weakref.ref(built.leaves["w1"]), weakref.ref(built.root)]
    built.clear_gradients()
    del built, leaf
    gc.collect()
    assert not any(reference() for reference in kept)


def test_a_net_larger_than_the_bound_is_not_kept(monkeypatch):
    spec = ModelSpec.parse({"widths": "6,5,1", "batch": 4})
    # float32: leaves x (4, 6), w1, b1, w2, b2, y (4,), and the draws of w1 and w2
    size = 4 * (24 + 30 + 5 + 5 + 1 + 4 + 30 + 5)
    for bound, is_kept in ((size, True), (size - 1, False)):
        monkeypatch.setattr(rescaled, "KEPT_BYTES", bound)
        net = RescaledNet()
        built = net.build(spec)
        again = net.build(spec.replace(scale=2.0))
        assert (built.leaves["w1"].data_ptr() == again.leaves["w1"].data_ptr()) == is_kept
        leaves_are_equal(again, build_model(spec.replace(scale=2.0)))
