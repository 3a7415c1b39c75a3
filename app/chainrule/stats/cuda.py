"""The kernels in `kernels.cu` on a CUDA device: compiled for it by NVRTC, which comes with PyTorch.

`_kernel.c` launches them. Where they cannot be compiled, PyTorch's operations take the statistics (`device.py`), in ten
times the time.
"""

from __future__ import annotations

import ctypes
import logging
from functools import cache
from pathlib import Path

import torch

from chainrule.stats import native

logger = logging.getLogger(__name__)

SOURCE = Path(__file__).with_name("kernels.cu")

TASKS = ("summarize", "histogram", "dead", "saturated", "group")
"""The kernels, each for every one of FLOATS."""

FLOATS = ("Float32", "Float16", "BFloat16")


class KernelError(Exception):
    """The kernels cannot be compiled or loaded; the message says why."""


class Driver:
    """CUDA's driver and its compiler, as PyTorch has loaded them.

    Raises:
        OSError, AttributeError: this PyTorch has others, or none.
    """

    def __init__(self) -> None:
        # It depends on both libraries, so their functions are found in it.
        self._cuda = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libcaffe2_nvrtc.so"))
        library = ctypes.CDLL(torch._C.__file__)
        self.device_type: int = library.aoti_torch_device_type_cuda()
        functions = (
            library.aoti_torch_get_device_index,
            library.aoti_torch_get_current_cuda_stream,
            self._cuda.cuLaunchKernel,
            self._cuda.cuStreamIsCapturing,
            self._cuda.cuCtxGetDevice,
        )
        self.addresses = tuple(ctypes.cast(each, ctypes.c_void_p).value or 0 for each in functions)
        """The functions that `_kernel.c` calls."""

    def compile(self, architecture: str) -> bytes:
        """The program for an architecture such as `sm_90`.

        Raises:
            KernelError: the compiler refuses it.
        """
        nvrtc, program, size = self._cuda, ctypes.c_void_p(), ctypes.c_size_t()
        nvrtc.nvrtcCreateProgram(ctypes.byref(program), SOURCE.read_bytes(), SOURCE.name.encode(), 0, None, None)
        # Products of float64 numbers are rounded before they are added, as on the host.
        options = (ctypes.c_char_p * 2)(f"--gpu-architecture={architecture}".encode(), b"--fmad=false")
        try:
            if nvrtc.nvrtcCompileProgram(program, len(options), options) != 0:
                nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
                log = ctypes.create_string_buffer(size.value)
                nvrtc.nvrtcGetProgramLog(program, log)
                raise KernelError(log.value.decode(errors="replace").strip())
            nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
            binary = ctypes.create_string_buffer(size.value)
            nvrtc.nvrtcGetCUBIN(program, binary)
            return binary.raw
        finally:
            nvrtc.nvrtcDestroyProgram(ctypes.byref(program))

    def load(self, program: bytes) -> tuple[int, ...]:
        """The kernels of a program on the current device: the TASKS of each of FLOATS.

        Raises:
            KernelError: the driver refuses it.
        """
        module, function, kernels = ctypes.c_void_p(), ctypes.c_void_p(), []
        if (code := self._cuda.cuModuleLoadData(ctypes.byref(module), program)) != 0:
            raise KernelError(f"cuModuleLoadData returned {code}")
        for kind in FLOATS:
            for task in TASKS:
                name = f"{task}_{kind}"
                if (code := self._cuda.cuModuleGetFunction(ctypes.byref(function), module, name.encode())) != 0:
                    raise KernelError(f"cuModuleGetFunction of {name} returned {code}")
                kernels.append(function.value or 0)
        return tuple(kernels)


@cache
def _driver() -> Driver:
    return Driver()


def current_stream(device: torch.device) -> int:
    """The address of the stream that is current on a device."""
    return torch.cuda.current_stream(device).cuda_stream


@cache
def prepare(device: int) -> bool:
    """Let the compiled kernel launch these on a device, the current one; False, with a line in the log, if it cannot.

    The first call takes a second.
    """
    kernel = native.kernel
    if kernel is None:
        return False
    try:
        kernel.bind_device(_driver().device_type, _driver().addresses)
        torch.cuda.mem_get_info(device)  # makes the device's context the current one of a thread that has none yet
        major, minor = torch.cuda.get_device_capability(device)
        return kernel.load_kernels(device, _driver().load(_driver().compile(f"sm_{major}{minor}")))
    except (OSError, AttributeError, KernelError) as error:
        logger.warning("no kernels on the CUDA device; PyTorch takes the statistics, slower: %s", error)
        return False
