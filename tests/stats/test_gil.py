"""Every function of the kernel releases the GIL: other threads run meanwhile."""

import sys
import threading
from collections import deque
from itertools import repeat

import numpy as np
import pytest
import torch

from chainrule.stats import BINS, COLUMNS, native

CALLS = 100_000


@pytest.fixture
def unasked(compiled):
    """The kernel with a stand-in for `is_neg` that is always false: PyTorch's function releases the GIL."""

    example = torch.empty(0)
    example.is_neg = sys.is_finalizing
    native.bind(compiled, example)
    yield compiled
    native.bind(compiled, torch.empty(0))


def further_arguments(name):
    """The arguments of a function after its tensor."""
    moments, counts = np.empty((2, len(COLUMNS))), np.empty((2, BINS), np.uint32)
    return {
        "summarize": (moments[0], counts[0]),
        "summarize_row": (moments, counts, 1),
        "dead_fraction": (),
        "saturation": (0.0, 0.5),
    }[name]


@pytest.mark.parametrize("name", ["summarize", "summarize_row", "dead_fraction", "saturation"])
def test_other_threads_run_meanwhile(unasked, name):
    """This thread sees the other one in the midst of calls between which nothing gives the interpreter away.

    They are made by `map` and `deque`, which are C: a thread that waits for the interpreter gets it from the function
    that is called, or after the last call. It asks after a while, and then the next function that gives it away waits
    until it is taken. So nothing depends on how long a call takes, or on what else runs.
    """
    function, arguments, tensor = getattr(unasked, name), further_arguments(name), torch.randn(200, 100)
    answer = function(tensor, *arguments)
    assert answer is not None
    assert answer is not False
    tensors = [tensor] * CALLS
    remaining = iter(tensors)
    calls = map(function, remaining, *map(repeat, arguments))
    thread = threading.Thread(target=deque, args=(calls,), kwargs={"maxlen": 0})
    thread.start()
    while (left := remaining.__length_hint__()) == CALLS:
        pass
    tensors.clear()  # ends the calls
    thread.join()
    assert 0 < left < CALLS
