"""Hooks and checks for schemathesis, beside the API's description; see `test_fuzz.py`."""

import re

import schemathesis

from chainrule.spec.keys import SPEC_KEYS
from chainrule.spec.programs import DEFAULT, PROGRAMS

NAMES = {key.name for key in SPEC_KEYS}

REFUSALS = {
    "invalid_spec",
    "invalid_sweep",
    "over_limit",
    "invalid_input",
    "invalid_parameter",
    "invalid_range",
    "invalid_body",
}


@schemathesis.hook
def map_case(context, case):  # noqa: ARG001 (the signature of a hook)
    """Drop the keys of a valid spec that its program does not use, so that most requests compute."""
    if not case.path.startswith("/api/v1/") or case.meta is None or not case.meta.generation.mode.is_positive:
        return case
    body = case.body if isinstance(case.body, dict) else {}
    for values in (case.query, body, body.get("spec")):
        if isinstance(values, dict):
            program = values.get("program", DEFAULT)
            used = PROGRAMS[program].keys if program in PROGRAMS else NAMES
            for name in [name for name in values if name in NAMES - set(used)]:
                del values[name]
    return case


@schemathesis.check
def errors_have_one_shape(ctx, response, case):  # noqa: ARG001 (the signature of a check)
    """Every error, planned or not, is JSON of the one shape and under the headers that every answer has."""
    assert "x-content-type-options" in response.headers
    assert "x-request-id" in response.headers
    if response.status_code >= 400 and response.headers.get("content-type", [""])[0].startswith("application/json"):
        error = response.json()["error"]
        assert set(error) <= {"code", "message", "field", "limit"}, error
        assert error["code"]
        assert error["message"]


@schemathesis.check
def valid_data_is_refused_with_a_reason(ctx, response, case):  # noqa: ARG001 (the signature of a check)
    """Rules beyond any schema, such as sizes that must fit, are explained by the error: it names the key."""
    if response.status_code == 422 and case.meta is not None and case.meta.generation.mode.is_positive:
        error = response.json()["error"]
        assert error["code"] in REFUSALS, error
        assert error.get("field"), error
        # A page that shows what PyTorch says to two tensors says it in PyTorch's words.
        assert re.search(rf"\b{re.escape(error['field'])}\b", error["message"]), error
