"""What to run: a small flat set of values from a query string or JSON, what it would cost, and what a server allows."""

from chainrule.spec.model_spec import ModelSpec

__all__ = ["ModelSpec"]
