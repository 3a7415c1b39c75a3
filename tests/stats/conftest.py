"""Which implementation of the statistics a test runs on; a test that asks for a fixture runs on each of its params.

kernel           on the host: PyTorch, or the compiled kernel for each instruction set
implementation   the same, and the device's implementation, run on the CPU
compiled         the compiled kernel for each instruction set

`make test` runs the best instruction set; the others are `long`, but for `test_instruction_sets_agree`.
"""

import pytest

from chainrule.stats import StatisticsSlab, device, native

INSTRUCTION_SETS = native.kernel.instruction_sets() if native.kernel else ()
COMPILED = [*INSTRUCTION_SETS[:1], *(pytest.param(name, marks=pytest.mark.long) for name in INSTRUCTION_SETS[1:])]


def _running(name):
    found, patch = native.kernel, pytest.MonkeyPatch()
    if name in ("torch", "device"):
        patch.setattr(native, "kernel", None)
    else:
        found.use(name)
    if name == "device":
        patch.setattr(StatisticsSlab, "ON_DEVICE", frozenset({"cpu"}))
        patch.setattr(device, "STAGED", 0)
        patch.setattr(device, "CHUNK", 8192)
    yield native.kernel
    patch.undo()
    if found:
        found.use(INSTRUCTION_SETS[0])


@pytest.fixture(scope="module", params=["torch", *COMPILED])
def kernel(request):
    """Take statistics on the host: by PyTorch, or by the compiled kernel for one of the instruction sets."""
    yield from _running(request.param)


@pytest.fixture(scope="module", params=["torch", "device", *COMPILED])
def implementation(request):
    """Take statistics by PyTorch, on a device in chunks of 8192 elements, or by the compiled kernel."""
    yield from _running(request.param)


@pytest.fixture(scope="module", params=COMPILED)
def compiled(request):
    """The compiled kernel; no tests where it was not built."""
    yield from _running(request.param)


@pytest.fixture(scope="module", params=["torch", *INSTRUCTION_SETS[:1]])
def implementation_on_host(request):
    """Take statistics on the host: by PyTorch, or by the compiled kernel for the best instruction set."""
    yield from _running(request.param)
