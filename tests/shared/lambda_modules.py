"""Modules that are put together from a forward function and their parts, and the dumps of their passes."""

import json

from torch import nn

from chainrule import trace_model
from chainrule.dump.wire import dump_trace


class Parts(nn.Module):
    """`forward(self, *inputs)` calls the parts, which are attributes."""

    def __init__(self, forward, **parts):
        super().__init__()
        self.run = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, *inputs):
        return self.run(self, *inputs)


def recorded(model, *inputs, loss=None):
    """The dump of one pass, as the page reads it."""
    return json.loads(dump_trace(trace_model(model, *inputs, loss=loss)))
