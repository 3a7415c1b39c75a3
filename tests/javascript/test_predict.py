"""Prediction mode: how a guess is read, and which figures are hidden."""

import pytest


@pytest.mark.parametrize(
    ("text", "guess"),
    [
        ("0.8", 0.8),
        (" 1e-3 ", 1e-3),
        ("−2", -2),
        ("50%", 0.5),
        ("", None),
        ("%", None),
        ("NaN", None),
        ("1e999", None),
        ("2.5.1", None),
        ("0x", None),
    ],
)
def test_guesses_are_read(module, text, guess):
    assert module("lab/prediction.js", "(m, text) => m.readGuess(text)", text) == guess


def test_copies_of_a_tensor_are_hidden_with_it(module, dump_of):
    rows = """(m, { dump, figure }) => import("/static/core/picture.js").then(({ pictureOfDump }) => {
        const picture = pictureOfDump(dump, 1, "key");
        const { hidden, floats } = m.hide(picture, m.parsePrediction(figure, ""));
        return [...hidden.rows].map((row) => dump.tensors.find(({ id }) => id === dump.statistics.tensor[row]).name);
    })"""
    dump = dump_of("")
    # Its transpose in the backward pass; the product before zero biases; the prediction as the loss sees it.
    assert set(module("lab/prediction.js", rows, {"dump": dump, "figure": "l2.std"})) == {"l2", "layers.2.t_1"}
    assert set(module("lab/prediction.js", rows, {"dump": dump, "figure": "l1.std"})) == {"l1", "layers.0.matmul"}
    assert {"out", "loss.squeeze"} <= set(module("lab/prediction.js", rows, {"dump": dump, "figure": "out.std"}))
    # relu leaves the largest preactivation as it is.
    assert {"l1", "l2"} <= set(module("lab/prediction.js", rows, {"dump": dump, "figure": "l2.max"}))
    # Nothing follows from a share of nothing.
    assert module("lab/prediction.js", rows, {"dump": dump, "figure": "b1.std"}) == ["b1"]
