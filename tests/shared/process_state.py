"""Process-wide state that a recording must not change: random streams and torch's hooks."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from torch.autograd.function import Function, _SingleLevelFunction
from torch.nn.modules import module as module_hooks
from torch.overrides import _get_current_function_mode_stack

from chainrule.trace.saved_hooks import top_hooks


def random_state() -> Any:
    kind, keys, *rest = np.random.get_state()
    return torch.get_rng_state().tolist(), random.getstate(), (kind, keys.tolist(), *rest)


HOOK_TABLES = [name for name, value in vars(module_hooks).items() if name.startswith("_global_") and "hooks" in name]


def left_behind() -> dict[str, Any]:
    return {
        **{name: len(getattr(module_hooks, name)) for name in HOOK_TABLES},
        "modes": len(_get_current_function_mode_stack()),
        "apply": _SingleLevelFunction.__dict__.get("apply"),
        "Function.apply": Function.__dict__.get("apply"),
        "backward": torch.Tensor.backward,
        "autograd": (torch.autograd.backward, torch.autograd.grad),
        "saved": top_hooks(False),
        "grad": torch.is_grad_enabled(),
        "dtype": torch.get_default_dtype(),
    }
