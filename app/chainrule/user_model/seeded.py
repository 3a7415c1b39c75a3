"""Seeds every generator of the process, and restores them.

The generators of torch's CPU and CUDA devices, of numpy and of `random` belong to the process, so only one thread at a
time may enter. Another thread that draws meanwhile, such as a training loop in a notebook, still uses them.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

_lock = threading.RLock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed all generators inside; afterwards each is as before."""
    with _lock:
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None  # type: ignore[no-untyped-call]
        cpu, numpy, python = torch.get_rng_state(), np.random.get_state(), random.getstate()
        try:
            torch.manual_seed(seed)
            np.random.seed(seed % 2**32)
            random.seed(seed)
            yield
        finally:
            torch.set_rng_state(cpu)
            np.random.set_state(numpy)
            random.setstate(python)
            if cuda is not None:
                torch.cuda.set_rng_state_all(cuda)
