"""`chainrule gradcheck f.py:MyFunction --inputs f.py:make_inputs`: runs the user's files and checks the function.

The user runs this command and trusts the files. The web server has no access to it.
"""

from __future__ import annotations

import sys
from typing import Any

from chainrule.errors import CheckError, ExploreError


def check_function(
    function: str, inputs: str, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3, seed: int = 42
) -> dict[str, Any]:
    """Check the function `file.py:name` at the point that `inputs` returns. Returns the report of `check`.

    Raises:
        CheckError: it cannot be checked; the message names the place.
        MemoryLimitError: memory ran out.
    """
    for name, value, least in (("eps", eps, sys.float_info.min), ("atol", atol, 0.0), ("rtol", rtol, 0.0)):
        if not least <= value < float("inf"):
            raise CheckError(f"--{name}: {value} is not a {'positive' if least else 'non-negative'} number", field=name)
    import_path, arguments = list(sys.path), sys.argv
    try:
        return _check(function, inputs, seed, {"eps": eps, "atol": atol, "rtol": rtol})
    except ExploreError as error:
        raise CheckError(error.message, limit=error.limit) from error
    finally:
        sys.path[:] = import_path
        sys.argv = arguments


def _check(function: str, inputs: str, seed: int, tolerances: dict[str, float]) -> dict[str, Any]:
    import torch

    from chainrule.gradcheck.check import Target, check, check_arguments
    from chainrule.user_model.code import as_program, load, shown_path, split_reference, telling

    file, name = split_reference(function)
    inputs_file, _ = split_reference(inputs)

    # A file's own folder comes first on the import path while the file runs, and while its functions run, because a
    # function may import too.
    as_program(file)
    target = Target(load(function), name, shown_path(file))
    as_program(inputs_file)
    make_inputs = load(inputs)
    if not callable(make_inputs):
        raise CheckError(
            f"{inputs} is of type {type(make_inputs).__name__}; expected a function that returns the inputs"
        )
    torch.manual_seed(seed)
    with telling("the function of the inputs raised", None, inputs, CheckError):
        made = make_inputs()
    try:
        arguments = check_arguments(made)
    except CheckError as error:
        raise CheckError(f"{inputs}: {error.message}") from error
    as_program(file)
    return {**check(target, arguments, **tolerances), "file": file.name}
