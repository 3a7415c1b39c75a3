"""The compiled observer, where this installation has it: `observer` is the module that `_observer.c` makes, or None.

It has the common paths of some classes. Each of these inherits from its `…Core`, which holds the attributes that both
sides use, and is `compiled`: the methods that the core has as well are kept as `python_…`, for what is not common.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from types import MethodDescriptorType
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch._C import DisableTorchFunction, _len_torch_dispatch_stack
from torch._C._functorch import is_functorch_wrapped_tensor, is_legacy_batchedtensor
from torch.nn.parallel import DistributedDataParallel

from chainrule.stats import native
from chainrule.trace.saved_hooks import top_hooks

OBSERVER_SWITCH = "CHAINRULE_OBSERVER"
"""Environment variable; `python` turns the compiled observer off, and `CHAINRULE_KERNEL=torch` both compiled parts."""

_Class = TypeVar("_Class", bound=type)


def _load() -> Any:
    if os.environ.get(OBSERVER_SWITCH) == "python":
        return None
    source = Path(__file__).with_name("_observer.c")
    found = native.load("chainrule.trace._observer", source, "observer", "the recorder runs in Python")
    try:
        if found is not None:
            found.bind(
                tensor=torch.empty(0),
                parameter=torch.nn.Parameter,
                strided=torch.strided,
                blindness=DisableTorchFunction,
                clock=perf_counter,
                dispatch_modes=_len_torch_dispatch_stack,
                saved_hooks=top_hooks,
                wrapped=is_functorch_wrapped_tensor,
                batched=is_legacy_batchedtensor,
                replicated=DistributedDataParallel,
            )
    except (AttributeError, ImportError, TypeError) as error:
        native.logger.warning("the observer cannot read PyTorch's tensors; the recorder runs in Python: %s", error)
        return None
    return found


observer = _load()

if TYPE_CHECKING or observer is None:

    class JournalCore:
        """The part of `Journal` that C has."""

    class FlowCore:
        """The part of `GradientFlow` that C has."""

    class ObserverCore:
        """The part of `Observer` that C has."""

        run_functional: Callable[..., Any]  # `AtenLevel._record` of an op that writes into none of its arguments

else:
    JournalCore, FlowCore, ObserverCore = observer.Journal, observer.Flow, observer.Observer


def compiled(python: _Class) -> _Class:
    """`python`, whose first base is a core, with the core's methods instead of its own."""
    for name, method in tuple(vars(python.__mro__[1]).items()):
        if isinstance(method, MethodDescriptorType) and name in vars(python):
            setattr(python, f"python_{name}", vars(python)[name])
            delattr(python, name)
    return python
