"""The spec of a trace: a small flat set of values from a query string or JSON, its cost, and a server's limits."""

from chainrule.spec.model_spec import ModelSpec

__all__ = ["ModelSpec"]
