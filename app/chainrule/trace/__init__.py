"""Recording: one forward and backward pass of anything that computes with torch.

graph.py       the parts of a recording: Module, Op, Tensor, Trace (frozen); Fault
recorder.py    `record` and `trace_model`
observer.py    sees every op while it happens
gradients.py, by_hand.py    see every gradient: of autograd's nodes, and in the `.g` of layers written by hand
entry_points.py, custom_functions.py    the ways into a backward pass; where an autograd.Function begins and ends
journal.py     the recording while it is being made; takes the statistics, `units.py` dead units and saturation
plan.py        repeats a recorded program, for the numbers only
owners.py, scope.py    the modules that ops belong to: by a model's structure, or by named scopes
ops.py, flops.py    names, attributes and costs of ops
nested.py      tensors among arguments, and in autograd's nodes
sources.py     the user's line behind an op
assemble.py    journal → trace: names, twins, ids; `records.py` makes the objects on demand
layers.py      finds the layers of a trace
"""

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
