"""A deep graph is freed: in a process of its own, because without guards it ends with a fault of the stack."""

import gc
import resource
import subprocess
import sys
import threading
import weakref

import pytest
import torch

from chainrule import record

DEEP = """
import sys, torch, chainrule
x = torch.ones(2, requires_grad=True)
def chain():
    y = x
    for step in range(20_000):
        y = y * 1.0 if step % 2 else y + 1.0
    return y.sum()
how = sys.argv[1]
with chainrule.record(level=sys.argv[2]) as recording:
    loss = chain()
    if how != "forward":
        loss.backward()
    if how == "inside":
        del loss
if how != "inside":
    del loss
print(len(recording.trace.ops) > 20_000)
"""

STACK = 2**21
"""Bytes. Without guards, a chain of 20,000 nodes needs twice as much."""


@pytest.mark.long
@pytest.mark.parametrize(("how", "level"), [("inside", "op"), ("forward", "op"), ("after", "op"), ("after", "aten")])
def test_a_deep_graph_is_freed_on_a_small_stack(how, level):
    done = subprocess.run(
        [sys.executable, "-c", DEEP, how, level],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_STACK, (STACK, STACK)),
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_in_another_thread_the_next_recording_frees_the_last_graph():
    """The main thread waits meanwhile, so it can free nothing."""
    kept, alive = [], []

    def train():
        for _ in range(4):
            with record() as recording:
                alive.append(sum(each() is not None for each in kept))
                x = torch.ones(2, requires_grad=True)
                y = x * 1.0
                kept.append(weakref.ref(y.grad_fn.metadata.setdefault("kept", Kept())))
                for _ in range(3000):
                    y = y * 1.0
                y.sum().backward()
            del y, recording

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert alive == [0, 0, 0, 0]


class Kept:
    """An object in the metadata of a node, which lives as long as the node."""


def test_no_part_of_a_deep_graph_stays_in_memory():
    kept = []

    class Keep(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.clone()
            kept.append(weakref.ref(y))
            ctx.of_forward = y
            return x * 1.0

        @staticmethod
        def backward(_ctx, gradient):
            return gradient

    x = torch.ones(2, requires_grad=True)
    with record() as recording:
        y = x
        for step in range(3000):
            y = Keep.apply(y) if step % 500 == 0 else y * 1.0
        y.sum().backward()
    assert all(each() is not None for each in kept)
    del y
    recording.trace.ops[0]
    gc.collect()
    assert [each() for each in kept] == [None] * len(kept) != []
