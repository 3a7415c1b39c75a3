"""The derivatives that the backward functions use, found by SymPy: a fixed list, and nothing typed is evaluated.

    square    d x² / dx                                                    2 x
    mse       loss of out, an element at a time                            mse_grad
    relu      out of inp                                                   relu_grad
    lin_inp   loss of inp, through every out that inp goes into            lin_grad, first line
    lin_w     loss of w                                                    lin_grad, second line
    lin_b     loss of b                                                    lin_grad, third line
    chain     loss of b2, and of w1, in the chapter's model of one unit per layer

Indices count from 0, as in code: k is the row of the batch, i the input of a layer, j its output; p and q index the
variable of the derivative. n is the batch, m is fan_in, c is fan_out. mse treats rows and columns alike: t counts all
N = targ.numel() elements of out. g is out.g, the gradient of the loss with respect to out. The last equation of each
derivation is the line of the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from sympy import (  # type: ignore[import-untyped]
    Derivative,
    Expr,
    IndexedBase,
    Mul,
    Piecewise,
    Sum,
    Symbol,
    diff,
    piecewise_fold,
    simplify,
    symbols,
)
from sympy.printing.mathml import MathMLPresentationPrinter  # type: ignore[import-untyped]

# -------------------------------------------------------------------------------------------------------- derivations


@dataclass(frozen=True)
class Equation:
    """One line of a derivation: `left = right`, and in words how it comes about."""

    says: str
    left: Expr
    right: Expr

    def mathml(self) -> str:
        """`left = right` as a presentation MathML element, `<math display="block">…</math>`."""
        sides = f"{_presentation(self.left)}<mo>=</mo>{_presentation(self.right)}"
        return f'<math xmlns="http://www.w3.org/1998/Math/MathML" display="block"><mrow>{sides}</mrow></math>'


@dataclass(frozen=True)
class Derivation:
    """Equations, one from the other; `code` is the line that computes the last one's right side."""

    name: str
    title: str
    code: str
    equations: tuple[Equation, ...]

    @property
    def result(self) -> Expr:
        """The right side of the last equation: the code computes this."""
        return self.equations[-1].right


# Indices and sizes.
k, i, j, t, p, q = symbols("k i j t p q", integer=True)
n, m, c, N = symbols("n m c N", integer=True, positive=True)

# Tensors.
inp, w, b, g, out, y = (IndexedBase(name) for name in ("inp", "w", "b", "g", "out", "y"))
loss = Symbol("loss")

ROWS, COLUMNS = (k, 0, n - 1), (j, 0, c - 1)
"""Of out: the batch, and fan_out."""


def square() -> Derivation:
    """The derivative of x², 2 x. Source: ch. 17, "SymPy"."""
    sx = Symbol("sx")
    equation = Equation("diff(sx**2, sx)", Derivative(sx**2, sx), diff(sx**2, sx))
    return Derivation("square", "The derivative of a square", "2. * …", (equation,))


def mse() -> Derivation:
    """∂loss/∂out of the mean squared error of N numbers: 2 (out − y) / N, N being batch · n_out."""
    value = Sum((out[t] - y[t]) ** 2, (t, 0, N - 1)) / N
    derivative = diff(value, out[p])
    return Derivation(
        "mse",
        "The mean squared error",
        "inp.g += 2 (inp − targ) / targ.numel()",
        (
            Equation("The mean of N squares, one for every element: N is targ.numel().", loss, value),
            Equation(
                "The derivative of each square; out_t depends on out_p only if t = p.",
                Derivative(loss, out[p]),
                derivative,
            ),
            Equation("One term of the sum remains.", Derivative(loss, out[p]), _in_range(derivative.doit())),
        ),
    )


def relu() -> Derivation:
    """∂out/∂inp of relu: 1 where inp > 0, else 0."""
    x, grad_output, element = Symbol("inp", real=True), Symbol("g"), Symbol("out")
    value = Piecewise((x, x > 0), (0, True))
    slope = diff(value, x)
    return Derivation(
        "relu",
        "Relu",
        "inp.g += 1[inp > 0] · out.g",
        (
            Equation("Each element is independent of the others.", element, value),
            Equation(
                "The slope is 0 on the left and 1 on the right; at the kink it is the slope on the left, 0.",
                _d(element, x),
                slope,
            ),
            Equation("The chain rule: the slope times the gradient of the output.", _d(loss, x), slope * grad_output),
        ),
    )


def _lin(name: str, title: str, code: str, by: Expr, limits: tuple[Any, Any], reads: str) -> Derivation:
    """The gradient of the linear layer by one element of a tensor: through every element of out.

    `limits`: of the sums over rows and columns of out, first the sum that the δ's remove.
    """
    value = Sum(inp[k, i] * w[i, j], (i, 0, m - 1)) + b[j]
    local = _in_range(diff(value, by).doit())
    through_all = Sum(g[k, j] * local, *limits)
    return Derivation(
        name,
        title,
        code,
        (
            Equation("One element of out: row k of inp times column j of w, and the bias.", out[k, j], value),
            Equation("Its local gradient; δ is 1 if its two indices are equal, else 0.", _d(out[k, j], by), local),
            Equation("The chain rule sums over every element of out.", _d(loss, by), through_all),
            Equation(f"δ selects one term of each sum: {reads}.", _d(loss, by), _in_range(through_all.doit())),
        ),
    )


def chain() -> Derivation:
    """The chapter's model with one unit per layer: local gradients multiplied, and the same differentiated at once."""
    x, w1, b1, w2, b2, l1, l2 = symbols("x w1 b1 w2 b2 l1 l2", real=True)
    result, target = symbols("out y", real=True)
    rectified = Piecewise((l1, l1 > 0), (0, True))
    locals_of = {
        "mse": diff((result - target) ** 2, result),
        "b2": diff(l2 * w2 + b2, b2),
        "l2": diff(l2 * w2 + b2, l2),
        "relu": diff(rectified, l1),
        "w1": diff(x * w1 + b1, w1),
    }
    by_b2 = locals_of["mse"] * locals_of["b2"]
    by_w1 = locals_of["mse"] * locals_of["l2"] * locals_of["relu"] * locals_of["w1"]

    def composed(expression: Expr) -> Expr:
        for tensor, computed in ((result, l2 * w2 + b2), (l2, rectified), (l1, x * w1 + b1)):
            expression = expression.subs(tensor, computed)
        return expression

    at_once = diff(composed((result - target) ** 2), w1)
    return Derivation(
        "chain",
        "The chain",
        "mse_grad, lin_grad, relu_grad, lin_grad",
        (
            Equation(
                "b2 reaches the loss only through out.",
                _d(loss, b2),
                Mul(_d(loss, result), _d(result, b2), evaluate=False),
            ),
            Equation("mse gives the first factor; b2 is added to out, so the second is 1.", _d(loss, b2), by_b2),
            Equation(
                "w1 is further back: relu and the first lin each add a factor.",
                _d(loss, w1),
                Mul(_d(loss, result), _d(result, l2), _d(l2, l1), _d(l1, w1), evaluate=False),
            ),
            Equation("The four local gradients, multiplied.", _d(loss, w1), by_w1),
            Equation(
                "The same without the chain rule's steps: the whole composition, differentiated at once.",
                _d(loss, w1),
                at_once,
            ),
            Equation(
                "The product with every tensor written out, minus this derivative: SymPy simplifies the difference.",
                Symbol("difference"),
                simplify(piecewise_fold(composed(by_w1) - at_once)),
            ),
        ),
    )


@cache
def derivations() -> Mapping[str, Derivation]:
    """All of them by name, worked out once. A pure function: no input reaches it."""
    lin_inp = _lin(
        "lin_inp",
        "The linear layer, by its input",
        "inp.g += out.g @ w.t()",
        inp[p, q],
        (ROWS, COLUMNS),
        "row p of g times row q of w, which is column q of w.t()",
    )
    lin_w = _lin(
        "lin_w",
        "The linear layer, by its weight",
        "w.g += inp.t() @ out.g",
        w[p, q],
        (COLUMNS, ROWS),
        "column p of inp, which is row p of inp.t(), times column q of g. The sum runs over the batch, because every "
        "row of the batch uses the same weight",
    )
    lin_b = _lin(
        "lin_b",
        "The linear layer, by its bias",
        "b.g += out.g.sum(0)",
        b[q],
        (COLUMNS, ROWS),
        "column q of g, summed over the batch",
    )
    made = (square(), mse(), relu(), lin_inp, lin_w, lin_b, chain())
    return {derivation.name: derivation for derivation in made}


def _d(value: Expr, by: Expr) -> Expr:
    """∂value/∂by as it is written; not worked out, since to SymPy `loss` is a mere symbol."""
    return Derivative(value, by, evaluate=False)


def _in_range(expression: Expr) -> Expr:
    """Without the conditions 0 ≤ p ≤ n − 1 that SymPy adds: p is an index of a tensor, so they hold."""
    return expression.replace(lambda part: isinstance(part, Piecewise), lambda part: part.args[0][0])


# ------------------------------------------------------------------------------------------------------------- MathML


class _Presentation(MathMLPresentationPrinter):  # type: ignore[misc]
    """SymPy's printer, with what it lacks: cases, δ, double sums, bare indices, a derivative as one fraction."""

    def _print_Indexed(self, expression: Any) -> Any:  # noqa: N802
        return self._with_indices(self._print(expression.base), expression.indices)

    def _print_KroneckerDelta(self, expression: Any) -> Any:  # noqa: N802
        delta = self._element("mi", "δ")
        return self._with_indices(delta, expression.args)

    def _print_Sum(self, expression: Any) -> Any:  # noqa: N802
        row = self._row()
        for index, low, high in reversed(expression.limits):
            sign = self._element("munderover")
            sign.appendChild(self._element("mo", "∑"))
            sign.appendChild(self._row(self._print(index), self._element("mo", "="), self._print(low)))
            sign.appendChild(self._print(high))
            row.appendChild(sign)
        body = self._print(expression.function)
        if expression.function.is_Add:
            body = self._row(self._element("mo", "("), body, self._element("mo", ")"))
        row.appendChild(body)
        return row

    def _print_Piecewise(self, expression: Any) -> Any:  # noqa: N802
        table = self._element("mtable")
        table.setAttribute("columnalign", "left left")
        for value, condition in expression.args:
            row = self._element("mtr")
            cell, when = self._element("mtd"), self._element("mtd")
            cell.appendChild(self._print(value))
            if condition == True:  # noqa: E712 (SymPy's own true, which is not Python's)
                when.appendChild(self._element("mtext", "otherwise"))
            else:
                when.appendChild(self._element("mtext", "if\N{NO-BREAK SPACE}"))
                when.appendChild(self._print(condition))
            row.appendChild(cell)
            row.appendChild(when)
            table.appendChild(row)
        return self._row(self._element("mo", "{"), table)

    def _print_Derivative(self, expression: Any) -> Any:  # noqa: N802
        value, (by, _count) = expression.args
        named = value.is_Symbol or value.func.__name__ == "Indexed"
        d = "∂" if named else "d"
        above, below = self._row(self._element("mo", d)), self._row(self._element("mo", d), self._print(by))
        fraction = self._element("mfrac")
        fraction.appendChild(above)
        fraction.appendChild(below)
        if named:
            above.appendChild(self._print(value))
            return fraction
        return self._row(fraction, self._print(value))

    def _with_indices(self, base: Any, indices: Any) -> Any:
        sub = self._element("msub")
        sub.appendChild(base)
        sub.appendChild(self._row(*(self._print(index) for index in indices)))
        return sub

    def _row(self, *children: Any) -> Any:
        row = self._element("mrow")
        for child in children:
            row.appendChild(child)
        return row

    def _element(self, tag: str, text: str | None = None) -> Any:
        element = self.dom.createElement(tag)
        if text is not None:
            element.appendChild(self.dom.createTextNode(text))
        return element


def _presentation(expression: Expr) -> str:
    """An expression as presentation MathML, in plain XML: SymPy names an entity that only HTML knows."""
    # In the order of the chain, where an expression is a product of derivatives.
    text: str = _Presentation({"order": "old"} if expression.has(Derivative) else {}).doprint(expression)
    return text.replace("&InvisibleTimes;", "&#x2062;").replace("<mo>-</mo>", "<mo>&#x2212;</mo>")
