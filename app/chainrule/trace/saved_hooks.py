"""Whether the program has hooks for saved tensors: reading a tensor that they saved can run the forward again."""

from __future__ import annotations

import threading
from typing import Any

from torch._C import _autograd


class _Depth(threading.local):
    value = 0


def _count() -> Any:
    """For torch 2.6, which does not tell: count the hooks of each thread from now on."""
    push, pop, depth = _autograd._push_saved_tensors_default_hooks, _autograd._pop_saved_tensors_default_hooks, _Depth()

    def counted_push(pack: Any, unpack: Any) -> None:
        push(pack, unpack)
        depth.value += 1

    def counted_pop() -> None:
        pop()
        depth.value -= 1

    _autograd._push_saved_tensors_default_hooks = counted_push  # type: ignore[assignment]
    _autograd._pop_saved_tensors_default_hooks = counted_pop
    return lambda _: depth.value or None


top_hooks = getattr(_autograd, "_top_saved_tensors_default_hooks", None) or _count()
"""Called with False: None if there are no such hooks."""
