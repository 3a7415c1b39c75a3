"""The cost of an op in floating-point operations, from its name, its attributes and its shapes.

A multiplication and an addition are one each, so a product of (m×k) and (k×n) costs 2·m·n·k; a function such as exp
is one. Moving elements costs nothing. A reduction costs about one per element that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isqrt, prod
from typing import Any

from chainrule.trace.ops import LINEAR, VIEWS

Shape = tuple[int, ...]
Shapes = Sequence[Shape]
Attributes = Mapping[str, Any]

MOVES = VIEWS | frozenset(
    "getitem setitem select narrow index index_select index_copy index_put index_fill gather scatter take "
    "take_along_dim masked_select masked_scatter masked_fill where nonzero argwhere "
    "expand expand_as broadcast_to broadcast_tensors repeat repeat_interleave tile roll flip fliplr flipud rot90 "
    "cat concat concatenate stack hstack vstack dstack column_stack row_stack "
    "split split_with_sizes tensor_split hsplit vsplit dsplit chunk unbind unfold diag diagonal diag_embed tril triu "
    "moveaxis swapdims atleast_1d atleast_2d atleast_3d meshgrid block_diag "
    "clone copy fill fill_diagonal zero_ to type type_as float double half bfloat16 int long short char byte bool cpu "
    "cuda resolve_conj resolve_neg real imag view_as_real view_as_complex complex "
    "tensor as_tensor asarray from_numpy scalar_tensor zeros ones full empty empty_strided eye arange zeros_like "
    "ones_like full_like empty_like new_tensor new_zeros new_ones new_full new_empty "
    "pad constant_pad_nd pixel_shuffle pixel_unshuffle channel_shuffle embedding one_hot "
    "pack_padded_sequence _pack_padded_sequence pad_packed_sequence _pad_packed_sequence lift_fresh".split()
)
"""Ops that move elements, fill them with constants, or convert their type."""

PER_INPUT_ELEMENT: Mapping[str, int] = {
    **dict.fromkeys(
        "sum nansum mean nanmean prod amax amin aminmax max min argmax argmin any all count_nonzero median nanmedian "
        "cumsum cumprod logcumsumexp trace embedding_bag adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d "
        "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d".split(),
        1,
    ),
    # Square and add.
    **dict.fromkeys("norm linalg_norm linalg_vector_norm linalg_matrix_norm frobenius_norm".split(), 2),
    # The mean, and the squares of the differences from it.
    **dict.fromkeys("var std var_mean std_mean cov corrcoef".split(), 4),
    **dict.fromkeys("softmax softmin log_softmax logsumexp normalize pairwise_distance dist".split(), 3),
    **dict.fromkeys("cross_entropy gumbel_softmax binary_cross_entropy_with_logits".split(), 4),
    **dict.fromkeys("batch_norm layer_norm group_norm instance_norm local_response_norm".split(), 5),
    "rms_norm": 4,
    **dict.fromkeys(
        "binary_cross_entropy kl_div mse_loss l1_loss smooth_l1_loss huber_loss poisson_nll_loss gaussian_nll_loss "
        "hinge_embedding_loss margin_ranking_loss soft_margin_loss multi_margin_loss multilabel_margin_loss "
        "triplet_margin_loss".split(),
        3,
    ),
    **dict.fromkeys("cosine_similarity cosine_embedding_loss multilabel_soft_margin_loss".split(), 6),
}
"""Ops that read every element of their first input, with the operations per element."""

_RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")

COMPOSITES = frozenset(
    "multi_head_attention_forward _native_multi_head_attention scaled_dot_product_attention "
    "tensordot einsum chain_matmul linalg_multi_dot multi_dot cdist inner".split()
).union(_RECURRENT, (f"{name}_cell" for name in _RECURRENT))
"""Ops that consist of several products: autograd runs a node for each part."""


def flops(name: str, inputs: Shapes, outputs: Shapes, attributes: Attributes | None = None) -> int:
    """Floating-point operations of a forward op; one per output element if the op is unknown."""
    if not outputs:
        return 0
    plain = name[:-1] if name.endswith("_") else name
    if name in MOVES or plain in MOVES:
        return 0
    size = sum(map(prod, outputs))
    formula = _FORMULAS.get(plain)
    try:
        if formula is not None:
            return formula(inputs, outputs, attributes or {})
        if plain in PER_INPUT_ELEMENT and inputs:
            # `max(a, b)` reduces nothing.
            is_binary = plain in ("max", "min") and len(inputs) == 2
            return size if is_binary else PER_INPUT_ELEMENT[plain] * prod(inputs[0])
    except (IndexError, ValueError, TypeError, StopIteration):
        # Arguments that the formula does not know, such as an operand that is a number.
        return size
    return size


def backward_flops(node: str, twin_name: str, twin_flops: int, arrived: Shapes, gradients: Shapes) -> int:
    """Floating-point operations of an autograd node; a product's backward is one product per factor with a gradient.

    `arrived` and `gradients` are the gradients that it reads and makes. A bias's is a sum, small beside the products.
    """
    if node in VIEWS:
        return 0
    if twin_name in COMPOSITES:
        return _part_flops(node, twin_flops, arrived, gradients)
    if twin_name in LINEAR or twin_name in _FUNCTIONS:
        return twin_flops * max(1, sum(len(shape) >= 2 for shape in gradients))
    if node.startswith(("Expand", "Repeat")):
        return sum(map(prod, arrived))
    return twin_flops


def _part_flops(node: str, twin_flops: int, arrived: Shapes, gradients: Shapes) -> int:
    """The cost of a node of a composite op: one of its products, or an op between them."""
    kind = node.split("Backward")[0]
    if kind in _SILENT_PARTS:
        return 0
    if kind.startswith("ScaledDotProduct"):
        # The weights are computed again, then a gradient for each of them, queries, keys and values: 5 products for 2.
        return twin_flops * 5 // 2
    if "Rnn" in kind:
        rows = prod(arrived[0][:-1]) if arrived else 0
        return 4 * rows * sum(prod(shape) for shape in gradients if len(shape) == 2)
    if kind in ("Mm", "Addmm", "Bmm", "Baddbmm", "Linear") and arrived:
        arriving = arrived[0]
        factors = [shape for shape in gradients if len(shape) >= 2]
        if kind == "Baddbmm" and len(factors) == 3:
            factors = factors[1:]
        return sum(
            # Of (m×k)·(k×n): the first factor's gradient (m×k) is summed over n, the second's over m.
            2 * prod(shape) * (arriving[-1] if _is_first(shape, place, len(factors), arriving) else arriving[-2])
            for place, shape in enumerate(factors)
        )
    return sum(map(prod, arrived))


def _is_first(shape: Shape, place: int, count: int, arriving: Shape) -> bool:
    return place == 0 if count == 2 else shape[-2] == arriving[-2] and shape[-1] != arriving[-1]


_SILENT_PARTS = frozenset(
    "Clone Copy ToCopy Select Slice Split UnsafeSplit SplitWithSizes Unbind Stack Cat Squeeze Flip IndexSelect Index "
    "Diagonal AsStrided".split()
)


Formula = Callable[[Shapes, Shapes, Attributes], int]


def _linear(inputs: Shapes, outputs: Shapes, _: Attributes) -> int:
    """A product, and a third input that is added to it, as in `addmm`."""
    size = prod(outputs[0])
    return 2 * size * inputs[1][-1] + (size if len(inputs) > 2 else 0)


def _tensordot(inputs: Shapes, outputs: Shapes, _: Attributes) -> int:
    size = prod(outputs[0])
    # The dimensions summed over stand in both factors and not in the result.
    return 2 * size * isqrt(prod(inputs[0]) * prod(inputs[1]) // size) if size else 0


def _chain(inputs: Shapes, _outputs: Shapes, _: Attributes) -> int:
    """A product of several matrices, from left to right."""
    rows = inputs[0][0] if len(inputs[0]) == 2 else 1
    return sum(2 * rows * prod(factor) for factor in inputs[1:])


def _bilinear(inputs: Shapes, outputs: Shapes, _: Attributes) -> int:
    size = prod(outputs[0])
    first, second = inputs[2][1:]
    return 2 * size * (first * second + second) + (size if len(inputs) > 3 else 0)


def _einsum(inputs: Shapes, _outputs: Shapes, attributes: Attributes) -> int:
    """The operands are joined from left to right; a label is summed over as soon as nothing else has it."""
    equation = next(value for key in ("equation", "0") if isinstance(value := attributes.get(key), str))
    left, arrow, right = equation.replace(" ", "").partition("->")
    operands = []
    lengths: dict[str, int] = {}
    for term, shape in zip(left.split(","), inputs, strict=True):
        before, dots, after = term.partition("...")
        names = [*before]
        if dots:
            more = len(shape) - len(before) - len(after)
            # Counted from the right, as broadcasting does.
            names += [f".{place}" for place in range(more, 0, -1)]
        names += [*after]
        for label, length in zip(names, shape, strict=True):
            lengths[label] = max(length, lengths.get(label, 1))
        operands.append(set(names))
    result = {label for label in lengths if label.startswith(".") or label in right}
    if not arrow:
        result |= {label for label in lengths if left.count(label) == 1}

    def size(labels: set[str]) -> int:
        return prod(lengths[label] for label in labels)

    joined = operands[0]
    if len(operands) == 1:
        return size(joined) if joined - result else 0
    total = 0
    for place, operand in enumerate(operands[1:], 2):
        both = joined | operand
        kept = both & result.union(*operands[place:])
        # Without a label to sum over, nothing is added.
        total += size(both) * (2 if both - kept else 1)
        joined = kept
    return total


def _attention(inputs: Shapes, _outputs: Shapes, _: Attributes) -> int:
    query, key, value = inputs[:3]
    return 2 * prod(query) * key[-2] + 2 * prod(query[:-1]) * key[-2] * value[-1]


def _multi_head_attention(inputs: Shapes, _outputs: Shapes, attributes: Attributes) -> int:
    """Projections of queries, keys and values, two products per head, and the projection of what comes out."""
    query, key, value = inputs[:3]
    # (length, batch, width) or (length, width); the fused op of eval mode has the batch first.
    keys = key[-2] if "embed_dim_to_check" not in attributes else key[0]
    keys += bool(attributes.get("add_zero_attn")) + ((1, 1, query[-1]) in inputs[3:])
    width = query[-1]
    projections = 2 * width * (2 * prod(query) + prod(key) + prod(value))
    biases = 2 * prod(query) + width * (prod(key[:-1]) + prod(value[:-1]))
    has_bias = any(len(shape) == 1 for shape in inputs[3:])
    return projections + (biases if has_bias else 0) + 4 * prod(query) * keys


def _recurrent(inputs: Shapes, states: int) -> int:
    """Every weight matrix, of each layer and direction, is applied once per sequence and time step."""
    weights = [shape for shape in inputs[1 + states :] if len(shape) <= 2]
    return prod(inputs[0][:-1]) * sum(2 * prod(shape) if len(shape) == 2 else prod(shape) for shape in weights)


def _recurrent_op(inputs: Shapes, _outputs: Shapes, _: Attributes) -> int:
    # A packed sequence has its lengths second; padding is not computed.
    return _recurrent(inputs, len(inputs) > 1 and len(inputs[1]) == 1)


def _pooling(inputs: Shapes, outputs: Shapes, attributes: Attributes) -> int:
    kernel = attributes.get("kernel_size", attributes.get("1", 1))
    spatial = max(1, len(outputs[0]) - 2)
    window = prod(kernel) if isinstance(kernel, (list, tuple)) else kernel**spatial
    # outputs[0] alone: max_pool2d may return the indices too.
    return int(prod(outputs[0]) * window) if inputs else 0


_FUNCTIONS: Mapping[str, Formula] = {"LinearCpp": _linear}
"""Custom Functions whose inside no recording sees, because it runs no torch ops."""

_FORMULAS: Mapping[str, Formula] = {
    **_FUNCTIONS,
    **dict.fromkeys(
        "matmul mm bmm linalg_matmul".split(),
        lambda inputs, outputs, _: 2 * prod(outputs[0]) * (inputs[0][-1] if inputs[0] else 1),
    ),
    **dict.fromkeys("linear addmm baddbmm addmv".split(), _linear),
    "addbmm": lambda inputs, outputs, _: 2 * prod(inputs[1]) * inputs[2][-1] + prod(outputs[0]),
    # Every element of the first factor is multiplied once, and added.
    **dict.fromkeys("dot vdot linalg_vecdot mv".split(), lambda inputs, _outputs, _: 2 * prod(inputs[0])),
    "addr": lambda _inputs, outputs, _: 2 * prod(outputs[0]),
    "inner": lambda inputs, outputs, _: 2 * prod(outputs[0]) * (inputs[0][-1] if inputs[0] and inputs[1] else 1),
    "tensordot": _tensordot,
    **dict.fromkeys("chain_matmul multi_dot linalg_multi_dot".split(), _chain),
    "bilinear": _bilinear,
    "einsum": _einsum,
    **dict.fromkeys(
        "conv1d conv2d conv3d".split(), lambda inputs, outputs, _: 2 * prod(outputs[0]) * prod(inputs[1][1:])
    ),
    **dict.fromkeys(
        "conv_transpose1d conv_transpose2d conv_transpose3d".split(),
        lambda inputs, _outputs, _: 2 * prod(inputs[0]) * prod(inputs[1][1:]),
    ),
    "conv_tbc": lambda inputs, outputs, _: 2 * prod(outputs[0]) * prod(inputs[1][:-1]),
    "scaled_dot_product_attention": _attention,
    **dict.fromkeys(("multi_head_attention_forward", "_native_multi_head_attention"), _multi_head_attention),
    **dict.fromkeys(_RECURRENT, _recurrent_op),
    **dict.fromkeys(("gru_cell", "rnn_tanh_cell", "rnn_relu_cell"), lambda inputs, _outputs, _: _recurrent(inputs, 1)),
    "lstm_cell": lambda inputs, _outputs, _: _recurrent(inputs, 2),
    **{f"{kind}_pool{rank}d": _pooling for kind in ("max", "avg") for rank in (1, 2, 3)},
    "cdist": lambda inputs, outputs, _: 3 * prod(outputs[0]) * inputs[0][-1],
}
