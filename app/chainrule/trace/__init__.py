"""Recording: one forward and backward pass of anything that computes with torch.

recorder ─▶ observer, gradients ─▶ journal ─▶ assemble ─▶ Trace        plan: a repetition for the numbers only

_observer.c is the common path of observer, gradients, journal and assemble, where it could be compiled (native.py).
"""

from chainrule.trace import versions  # noqa: F401 (it warns of a version that was not tested)
from chainrule.trace.graph import Failure, Fault, Layer, Module, Op, Saved, Source, Tensor, Trace
from chainrule.trace.layers import find_layers
from chainrule.trace.plan import Known, Plan, repeat
from chainrule.trace.recorder import record, trace_model
from chainrule.trace.scope import loss_scope, scope

__all__ = [
    "Failure",
    "Fault",
    "Known",
    "Layer",
    "Module",
    "Op",
    "Plan",
    "Saved",
    "Source",
    "Tensor",
    "Trace",
    "find_layers",
    "loss_scope",
    "record",
    "repeat",
    "scope",
    "trace_model",
]
