"""Modules made of a function, and their dumps."""

import json

from torch import nn

from chainrule import trace_model
from chainrule.dump.wire import dump_trace


class Calling(nn.Module):
    """A module whose forward is a function of it and its inputs."""

    def __init__(self, function, **modules):
        super().__init__()
        self.function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, *inputs):
        return self.function(self, *inputs)


def recorded(model, *inputs, loss=None):
    """The dump of one pass, as the page reads it."""
    return json.loads(dump_trace(trace_model(model, *inputs, loss=loss)))
