"""The implementations that this machine runs: a test that asks for one of these fixtures holds for each of them.

kernel           what takes statistics of a tensor on the host: PyTorch, or the kernel for each instruction set
implementation   these, and what takes them on a device, which is the CPU here
compiled         the kernel for each instruction set
"""

import pytest

from chainrule.stats import StatisticsSlab, device, native

INSTRUCTION_SETS = native.kernel.instruction_sets() if native.kernel else ()


def _run(name, patch):
    """Let `name` take statistics until `patch` is undone."""
    if name == "torch":
        patch.setattr(native, "kernel", None)
    elif name == "device":
        patch.setattr(native, "kernel", None)
        patch.setattr(StatisticsSlab, "ON_DEVICE", frozenset({"cpu"}))
        patch.setattr(device, "STAGED", 0)
        patch.setattr(device, "CHUNK", 8192)
    else:
        native.kernel.use(name)


def _running(name):
    found, patch = native.kernel, pytest.MonkeyPatch()
    _run(name, patch)
    yield native.kernel
    patch.undo()
    if found:
        found.use(INSTRUCTION_SETS[0])


@pytest.fixture(scope="module", params=["torch", *INSTRUCTION_SETS])
def kernel(request):
    """What takes statistics on the host: PyTorch alone, or what was compiled for one of the instruction sets."""
    yield from _running(request.param)


@pytest.fixture(scope="module", params=["torch", "device", *INSTRUCTION_SETS])
def implementation(request):
    """What takes statistics: PyTorch alone, a device in chunks of 8192 elements, or one of the instruction sets."""
    yield from _running(request.param)


@pytest.fixture(scope="module", params=INSTRUCTION_SETS)
def compiled(request):
    """The compiled kernel, for each of the processor's instruction sets; no tests where it was not built."""
    native.kernel.use(request.param)
    yield native.kernel
    native.kernel.use(INSTRUCTION_SETS[0])


@pytest.fixture(scope="module", params=["torch", *INSTRUCTION_SETS[:1]])
def implementation_on_host(request):
    """What takes statistics on the host: PyTorch alone, or the kernel for the best of the instruction sets."""
    yield from _running(request.param)
