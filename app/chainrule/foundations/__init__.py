"""The textbook: a neural net from the foundations, each file one rung above the one before.

    neuron.py          a neuron and a layer of neurons, as sums over zip
    arithmetic.py      operators element by element, comparisons, and reductions to one element
    matmul.py          a matrix product on five rungs, from three loops to @
    broadcasting.py    which shapes go together, and the strides of what is stretched
    einsum_notation.py reading an equation of einsum; einsum.py says what it means, and computes it
    layers.py          lin, relu, mse, cross_entropy and the gradient of each; then the same as classes, and a Model
    activations.py     the other activations: one table, name → f and its gradient
    layer_function.py  what the classes have in common, factored out: forward and bwd
    functions.py       the same once more as torch.autograd.Function: autograd calls our gradients
    modules.py         the same as torch.nn.Module: autograd finds the gradients
    styles.py          one model in each of these ways, side by side
    initialization.py  how the weights are drawn
    derivations.py     the derivative behind each gradient, by SymPy
    gradient_check.py  analytic and numeric Jacobians, and how far they may differ
    exercises.py       Functions with a mistake in their backward, to be found
    misprints.py       the misprints of the printed code, made to run
    linear_extension/  the linear layer once more, in C++ and CUDA

Follows chapter 17 of J. Howard and S. Gugger, *Deep Learning for Coders with fastai and PyTorch* (O'Reilly, 2020),
"A Neural Net from the Foundations" (below: ch. 17), and PyTorch's notes "Extending PyTorch" (below: the PyTorch
tutorial). Every docstring says where the code differs from what is printed there, and why.

Axes:      batch, fan_in (inputs of a layer), fan_out (its outputs), classes.
Weights:   `w` of the scratch layers lies as in the chapter, (fan_in, fan_out): `out = inp @ w + b`. The `weight` of
           `functions.LinearFunction` and `modules.Linear` lies as in PyTorch, (fan_out, fan_in).
Gradients: "the gradient of t" is the gradient of the loss with respect to t; scratch code keeps it in `t.g`.
"""
