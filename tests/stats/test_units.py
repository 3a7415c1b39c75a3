import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.stats import dead_fraction, saturation

pytestmark = pytest.mark.usefixtures("kernel")

FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def dead_by_definition(tensor):
    """The share of places outside dimension 0 whose largest value is a number and not above zero."""
    values = tensor.detach().resolve_neg().to(torch.float64).numpy().reshape(len(tensor), -1)
    return np.mean([not np.isnan(unit).any() and unit.max() <= 0 for unit in values.T])


@pytest.mark.smoke
def test_by_hand():
    activation = torch.tensor([[0.0, 1.0, -1.0, 0.0], [0.0, 0.0, -2.0, 3.0]])
    assert dead_fraction(activation) == 0.5
    assert saturation(torch.tensor([0.98, -0.98, 0.96, -0.5]), 0.0) == 0.5
    assert saturation(torch.tensor([0.99, 0.01, 0.98, 0.02, 0.5]), 0.5) == 0.4


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@settings(max_examples=20)
@given(data=st.data())
def test_dead_units_of_any_activation(dtype, data):
    shape = data.draw(
        st.sampled_from([(1, 1), (2, 3), (7, 1), (1, 2000), (3, 1023), (3, 1024), (3, 1025), (4, 3, 5, 5)])
    )
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**32 - 1)))
    tensor = (torch.randn(shape, generator=generator) - data.draw(st.sampled_from([0.0, 1.0, 2.0]))).to(dtype)
    if data.draw(st.booleans()):
        tensor.relu_()
    flat = tensor.view(-1)
    specials = st.sampled_from([math.nan, -math.nan, math.inf, -math.inf, -0.0, torch.finfo(dtype).smallest_normal / 4])
    for value in data.draw(st.lists(specials, max_size=4)):
        flat[data.draw(st.integers(0, flat.numel() - 1))] = value
    assert dead_fraction(tensor) == dead_by_definition(tensor)


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 17])
@pytest.mark.parametrize("alive_in", [0, -1])
def test_a_unit_that_is_alive_for_one_input_is_not_dead(rows, alive_in):
    tensor = torch.zeros(rows, 40)
    tensor[alive_in, ::4] = 1
    assert dead_fraction(tensor) == 0.75
    tensor[0, 1::2] = 1
    assert dead_fraction(tensor) == 0.25
    tensor[alive_in] = 1
    assert dead_fraction(tensor) == 0


@pytest.mark.parametrize(
    "arrange",
    [
        lambda tensor: tensor,
        lambda tensor: tensor.to(memory_format=torch.channels_last),
        lambda tensor: tensor.transpose(0, 1).contiguous().transpose(0, 1),
        lambda tensor: tensor.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
        lambda tensor: tensor[:, ::2, 1:],
        lambda tensor: tensor[:1],
        lambda tensor: tensor[:, :1].expand(-1, 4, -1, -1),
        lambda tensor: torch._neg_view(tensor.neg()),
    ],
    ids=["contiguous", "channels last", "batch second", "reversed", "strided", "batch of one", "expanded", "negated"],
)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_any_memory_layout(arrange, dtype):
    activation = arrange((torch.randn(6, 8, 5, 7, generator=torch.Generator().manual_seed(1)) - 1).to(dtype))
    assert 0 < dead_fraction(activation) == dead_by_definition(activation)
    wide = activation.tanh() * 1.01
    expected = np.count_nonzero((wide.abs() > 0.97).numpy()) / wide.numel()
    assert saturation(wide, 0.0) == expected


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("middle", [0.0, 0.5])
def test_saturation_at_the_limit_itself(dtype, middle):
    """Around both limits every number of the dtype, compared as PyTorch compares numbers of the dtype with a scalar."""
    near = []
    for limit in (middle - 0.97 * (1 - middle), middle + 0.97 * (1 - middle)):
        number = torch.tensor(limit, dtype=dtype)
        integers = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
        steps = torch.arange(-20, 21).to(integers)
        near.append((number.view(integers) + steps).view(dtype))
    values = torch.cat([*near, torch.tensor([math.nan, math.inf, -math.inf, 0.0, middle], dtype=dtype)])
    for value in values:
        expected = bool((value - middle).abs() > 0.97 * (1 - middle)) if middle else bool(value.abs() > 0.97)
        assert saturation(value, middle) == expected, value
    assert 0 < saturation(values, middle) < 1


@pytest.mark.parametrize("size", [1, 5, 8191, 8192, 8193, 50_000])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_saturation_of_any_size(size, dtype):
    values = torch.randn(size, generator=torch.Generator().manual_seed(size)).mul(2).to(dtype)
    assert saturation(values.tanh(), 0.0) == (values.tanh().abs() > 0.97).double().mean().item()
    assert saturation(values.sigmoid(), 0.5) == ((values.sigmoid() - 0.5).abs() > 0.485).double().mean().item()


def test_activations_are_only_read():
    activation = torch.randn(5, 4, requires_grad=True).relu()
    version, before = activation._version, activation.detach().clone()
    dead_fraction(activation)
    saturation(activation, 0.0)
    saturation(activation, 0.5)
    assert activation._version == version
    assert torch.equal(activation, before)
