"""A model with autograd Functions of its own: one whose gradient is right, one whose gradient is twice what it is."""

import torch
from torch import nn
from torch.autograd import Function


class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return 2 * x * grad_output


class WrongCube(Function):
    """Takes an exponent, which is no tensor; its backward forgets that the power falls by one."""

    @staticmethod
    def forward(ctx, x, exponent):
        ctx.save_for_backward(x)
        ctx.exponent = exponent
        return x**exponent

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return ctx.exponent * x**ctx.exponent * grad_output, None


class Powers(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.second = nn.Linear(8, 3)

    def forward(self, x):
        x = Square.apply(self.first(x))
        return WrongCube.apply(self.second(x), 3)


def make():
    return Powers(), torch.randn(5, 6), lambda out: out.mean()
