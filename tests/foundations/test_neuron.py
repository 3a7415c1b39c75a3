import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from draws import normal
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.foundations.neuron import dense, dense_matmul, neuron, relu

FINITE = st.floats(-1e6, 1e6)
SIZES = st.integers(1, 5)


@given(st.lists(st.tuples(FINITE, FINITE), max_size=20), FINITE)
def test_neuron_is_the_dot_product_and_the_bias(pairs, bias):
    inputs, weights = [x for x, _ in pairs], [w for _, w in pairs]
    exact = math.fsum([x * w for x, w in pairs] + [bias])
    largest = math.fsum([abs(x * w) for x, w in pairs] + [abs(bias)])
    assert neuron(inputs, weights, bias) == pytest.approx(exact, abs=(len(pairs) + 1) * 2**-52 * largest, rel=0)


@pytest.mark.parametrize(("inputs", "weights"), [([1.0, 2.0, 3.0], [1.0, 2.0]), ([1.0], [1.0, 2.0])])
def test_neuron_refuses_lists_of_different_lengths(inputs, weights):
    with pytest.raises(ValueError, match=r"zip\(\) argument 2 is (shorter|longer) than argument 1"):
        neuron(inputs, weights, 0.0)


@given(st.floats())
def test_relu_of_a_number_is_torchs(x):
    expected = torch.relu(torch.tensor(x, dtype=torch.float64)).item()
    assert relu(x) == expected or (math.isnan(relu(x)) and math.isnan(expected))
    of_tensor = relu(torch.tensor(x, dtype=torch.float64))
    torch.testing.assert_close(of_tensor, torch.relu(torch.tensor(x, dtype=torch.float64)), equal_nan=True)


@given(SIZES, SIZES, SIZES, st.integers(0, 2**31))
@settings(max_examples=40)
def test_dense_by_sums_and_at_once_are_torchs_linear(batch_size, n_inputs, n_neurons, seed):
    x, w, b = normal(seed, batch_size, n_inputs), normal(seed + 1, n_neurons, n_inputs), normal(seed + 2, n_neurons)
    expected = F.linear(x, w, b)
    for layer in (dense, dense_matmul):
        y = layer(x, w, b)
        assert y.dtype == torch.float64
        torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("layer", [dense, dense_matmul])
@pytest.mark.parametrize(
    ("x", "w", "b"), [((2, 3), (4, 2), (4,)), ((2, 3), (4, 3), (3,)), ((3,), (4, 3), (4,)), ((2, 3), (4, 3), (1, 4))]
)
def test_layers_name_pattern_and_shapes(layer, x, w, b):
    with pytest.raises(ValueError, match=r"expected x \(batch_size, n_inputs\).*got x") as raised:
        layer(torch.ones(x), torch.ones(w), torch.ones(b))
    assert str(raised.value).endswith(f"got x {x}, w {w}, b {b}")
