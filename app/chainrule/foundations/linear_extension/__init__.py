"""The linear operator as a C++ extension: sources, build, and the Function and module that use it.

linear.h          the shapes, and what the sources offer each other
linear.cpp        forward and backward, their checks, the binding to Python
linear_cuda.cu    the products on a GPU
library.py        where the compiled file lies, how it is loaded
build.py          the requirements of a build, and the build itself
function.py       LinearCpp, the autograd Function, and LinearCppLayer, the nn.Module

>>> build_extension()                        # once; `chainrule build-extension` does the same
>>> out = LinearCpp.apply(inp, weight, bias)
"""

from chainrule.foundations.linear_extension.build import build_extension
from chainrule.foundations.linear_extension.function import LinearCpp, LinearCppLayer
from chainrule.foundations.linear_extension.library import (
    ExtensionBuildError,
    ExtensionNotBuiltError,
    extension_path,
    load_extension,
)

__all__ = [
    "ExtensionBuildError",
    "ExtensionNotBuiltError",
    "LinearCpp",
    "LinearCppLayer",
    "build_extension",
    "extension_path",
    "load_extension",
]
