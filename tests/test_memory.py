"""Running out of memory is one error, from any source, and the next pass is right."""

import ctypes
import errno
import gc
import json
import os
import resource
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch

import chainrule
from chainrule.errors import MemoryLimitError
from chainrule.memory import memory_errors, out_of_memory, release_memory, return_free_pages, without_collection
from chainrule.trace import record

PIB = 1 << 50
"""More bytes than any machine has addresses for: every allocator refuses."""


class HugeGradient(torch.autograd.Function):
    @staticmethod
    def forward(_ctx, inp):
        return inp * 2

    @staticmethod
    def backward(_ctx, _grad_output):
        return torch.empty(PIB)


def in_forward():
    torch.ones(3).repeat(PIB)


def in_a_backward_of_ours():
    HugeGradient.apply(torch.ones(3, requires_grad=True)).sum().backward()


def in_a_hook_of_the_backward():
    inp = torch.ones(3, requires_grad=True)
    out = inp * 2
    out.register_hook(lambda _: torch.empty(PIB))
    out.sum().backward()


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("work", "says"),
    [
        (lambda: torch.empty(PIB), "the host ran out of memory: .*allocate memory: you tried to allocate"),
        (lambda: np.empty(PIB), r"the host ran out of memory: Unable to allocate 8\.00 PiB"),
        (lambda: b"." * PIB, "the host ran out of memory: MemoryError"),
    ],
    ids=["torch", "numpy", "python"],
)
def test_torch_numpy_and_python_out_of_memory_are_one_error(work, says):
    with pytest.raises(MemoryLimitError, match=says) as caught, memory_errors():
        work()
    assert caught.value.status == 507
    assert out_of_memory(caught.value.__cause__) == "host"


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("error", "place"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB."), "device"),
        (RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported later"), "device"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), "device"),
        (RuntimeError("[enforce fail at alloc_cpu.cpp:80] data. DefaultCPUAllocator: not enough memory"), "host"),
        (RuntimeError("std::bad_alloc"), "host"),
        (RuntimeError("can't start new thread"), "host"),
        (OSError("libmini_racer.so: failed to map segment from shared object"), "host"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "host"),
        (OSError(errno.ENOENT, "cannot allocate memory"), None),
        (OSError("libmini_racer.so: cannot open shared object file: No such file or directory"), None),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)"), None),
        (ValueError("not enough memory"), None),
        (KeyboardInterrupt(), None),
    ],
)
def test_errors_that_mean_out_of_memory(error, place):
    assert out_of_memory(error) == place


@pytest.mark.smoke
def test_other_errors_go_through_unchanged():
    error = ValueError("odd")
    with pytest.raises(ValueError, match="odd") as caught, memory_errors():
        raise error
    assert caught.value is error
    assert error.__traceback__ is not None


def test_the_error_keeps_no_tensor():
    seen = []

    def work():
        tensor = torch.ones(5)
        seen.append(weakref.ref(tensor))
        in_forward()

    with pytest.raises(MemoryLimitError) as caught, memory_errors():
        work()
    gc.collect()
    assert seen[0]() is None, caught.value


@pytest.mark.smoke
@pytest.mark.parametrize("work", [in_forward, in_a_backward_of_ours, in_a_hook_of_the_backward])
def test_a_recording_keeps_the_out_of_memory_error(work):
    with pytest.raises(MemoryLimitError), memory_errors(), record() as recording:
        work()
    assert "allocate memory" in recording.trace.error.message
    release_memory()
    with record() as again:
        loss = (torch.full((3,), 2.0) ** 2).sum()
    assert [op.name for op in again.trace.ops] == ["full", "pow", "sum"]
    assert loss == 12


def pages_in_memory(starts, length):
    """How many of the whole pages inside of these ranges of addresses are in memory."""
    page = resource.getpagesize()
    count = 0
    for start in starts:
        first = -(-start // page) * page
        found = ctypes.create_string_buffer((start + length - first) // page)
        size = ctypes.c_size_t(len(found) * page)
        assert ctypes.CDLL(None, use_errno=True).mincore(ctypes.c_void_p(first), size, found) == 0
        count += sum(byte & 1 for byte in found.raw)
    return count


def test_free_pages_inside_of_the_heap_are_returned_to_the_system():
    return_free_pages()
    if not hasattr(ctypes.CDLL(None), "malloc_trim"):
        return  # the system has no such function, and that is no error
    # A heap with a kept block every 240 KB: the free pages between are not at its end, where glibc returns them.
    blocks = [torch.ones(30_000, dtype=torch.float32) for _ in range(2200)]
    starts = [block.data_ptr() for block in blocks[:2000:2]]
    del blocks[::2]
    between = pages_in_memory(starts, 120_000)
    return_free_pages()
    assert between >= 0.9 * 28 * len(starts)  # else nothing was left to give back
    assert pages_in_memory(starts, 120_000) <= 0.1 * between
    assert all(block.sum() == 30_000 for block in blocks)


PASSES = """
import json, resource, sys
import numpy as np
import torch
from chainrule.errors import MemoryLimitError
from chainrule.memory import memory_errors, release_memory
from chainrule.run import Retracer
from chainrule.spec import ModelSpec

torch.set_num_threads(1)
said = []
for style, query, spare in json.loads(sys.argv[1]):
    small = ModelSpec.parse({"widths": "20x6", "batch": "8", "style": style})
    large = ModelSpec.parse({**query, "style": style})
    retracer = Retracer()
    right = [retracer.trace(small.replace(scale=scale)) for scale in (0.5, 1.0)]
    pages = int(open("/proc/self/statm").read().split()[0])
    most = pages * resource.getpagesize() + (spare << 20)
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    for _ in range(3):
        try:
            with memory_errors():
                retracer.trace(large)
        except MemoryLimitError as error:
            said.append(error.message)
        retracer.forget()
        release_memory()
        again = [retracer.trace(small.replace(scale=scale)) for scale in (0.5, 1.0)]
        for one, other in zip(right, again):
            assert one.loss == other.loss
            assert np.array_equal(one.statistics.moments, other.statistics.moments, equal_nan=True)
            assert (one.statistics.counts == other.statistics.counts).all()
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
print(json.dumps(said))
"""

WEIGHTS = {"widths": "1024x41", "batch": "16"}  # 160 MiB
ACTIVATIONS = {"widths": "16x81", "batch": "65536"}  # 4 MiB for every one of 160 tensors, in either direction


@pytest.mark.parametrize(
    "cases",
    [
        [("module", WEIGHTS, 96), ("classes", ACTIVATIONS, 96)],
        # With 700 MiB it gets as far as the backward pass.
        pytest.param([("functions", ACTIVATIONS, 700), ("autograd_function", ACTIVATIONS, 96)], marks=pytest.mark.long),
    ],
)
def test_a_small_pass_is_right_after_one_that_is_too_large(cases):
    done = subprocess.run(
        [sys.executable, "-c", PASSES, json.dumps(cases)],
        env=os.environ | {"PYTHONPATH": str(Path(chainrule.__file__).parents[1]), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert len(said) == 3 * len(cases)
    assert all("the host ran out of memory" in each for each in said)


@pytest.mark.parametrize("is_on", [True, False])
def test_the_last_of_several_pauses_restores_the_garbage_collector(is_on):
    first, second = without_collection(), without_collection()
    (gc.enable if is_on else gc.disable)()
    try:
        first.__enter__()
        second.__enter__()
        first.__exit__()
        assert not gc.isenabled()
        second.__exit__()
        assert gc.isenabled() == is_on
    finally:
        gc.enable()
