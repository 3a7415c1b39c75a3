"""The implementations of the kernel that this machine runs: a test that asks for `kernel` holds for each of them."""

import pytest

from chainrule.stats import native

INSTRUCTION_SETS = native.kernel.instruction_sets() if native.kernel else ()


@pytest.fixture(scope="module", params=["torch", *INSTRUCTION_SETS])
def kernel(request):
    """What takes statistics: PyTorch alone, or what was compiled for one of the processor's instruction sets."""
    found, patch = native.kernel, pytest.MonkeyPatch()
    if request.param == "torch":
        patch.setattr(native, "kernel", None)
    else:
        found.use(request.param)
    yield native.kernel
    patch.undo()
    if found:
        found.use(INSTRUCTION_SETS[0])


@pytest.fixture(scope="module", params=INSTRUCTION_SETS)
def compiled(request):
    """The compiled kernel, for each of the processor's instruction sets; no tests where it was not built."""
    native.kernel.use(request.param)
    yield native.kernel
    native.kernel.use(INSTRUCTION_SETS[0])
