"""Functions of autograd for tests."""

from torch.autograd import Function


def made(forward, backward, name="Made"):
    """A Function of two functions."""
    return type(name, (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})
