"""Your own model: the explorer on any PyTorch code, run by nobody but its owner.

    file.py:factory ─▶ own_code ─▶ Subject ─▶ OwnModel ─▶ OwnTracer ─▶ Trace
                                   (a what-if says what is changed on a copy first)

own_code.py    a file is run, and run anew after an edit; where in it something was raised
subject.py     what a factory returned, checked: a model, its inputs, what makes a scalar of its output
what_if.py     what is changed: a scale or a new draw, of all parameters or of one group's
tracer.py      one copy of the model, traced again and again
own_model.py   the subject of today, and who wants to know of the next
watch.py       a file that has changed is run anew
view.py        the same from Python: `chainrule.explore(model, *inputs)`, in the browser or in a notebook

The package has the name of what it is for, and can be called: `chainrule.explore(model, x)` is `view.explore`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from chainrule.explore.view import View


class _Callable(ModuleType):
    """A module that stands for the function which it is all about."""

    def __call__(self, *args: Any, **kwargs: Any) -> View:
        """See `chainrule.explore.view.explore`."""
        from chainrule.explore.view import explore

        return explore(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
