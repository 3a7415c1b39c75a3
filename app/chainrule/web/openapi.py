"""What the OpenAPI document says of a route, from the table of the spec's keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.responses import Response

from chainrule.export.options import Option
from chainrule.spec.keys import SPEC_KEYS, SpecKey, keys_of
from chainrule.spec.presets import PRESETS
from chainrule.spec.programs import PROGRAMS

OPENAPI_VERSION = "3.0.3"
"""What the packaged Swagger UI reads; every schema here keeps to it."""

ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {"type": "string", "description": "What went wrong, for programs."},
                "message": {"type": "string", "description": "What went wrong, naming key, value and what is allowed."},
                "field": {"type": "string", "description": "The key at fault."},
                "limit": {"description": "What is allowed."},
            },
        }
    },
}


def described(
    summary: str,
    description: str,
    *,
    tag: str,
    errors: Sequence[int] = (),
    media_type: str = "application/json",
    parameters: Sequence[dict[str, Any]] = (),
    body: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Arguments of `add_api_route` that describe a route."""
    extra: dict[str, Any] = {}
    if parameters:
        extra["parameters"] = list(parameters)
    if body is not None:
        extra["requestBody"] = {"required": True, "content": {"application/json": {"schema": body}}}
    return {
        "summary": summary,
        "description": description,
        "tags": [tag],
        # No class of its own: routes make their answers themselves.
        "response_class": Response,
        "responses": {
            200: {"description": description, "content": {media_type: {}}},
            **{
                status: {
                    "description": ERRORS[status],
                    "content": {"application/json": {"schema": ERROR_SCHEMA}},
                }
                for status in errors
            },
        },
        "openapi_extra": extra,
    }


ERRORS = {
    400: "The request cannot be read.",
    401: "A token is needed.",
    404: "There is no such name.",
    408: "The body has not arrived in time.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "A key is unknown, a value is malformed, or more is asked than is allowed.",
    501: "An optional dependency, or the C++ extension, is not installed on the server.",
    503: "The device is busy, and Retry-After says for how long; or the server is shutting down.",
    504: "To compute it would take longer than is allowed.",
    507: "The host or the device ran out of memory.",
}

COMPUTE_ERRORS = (503, 504, 507)
"""What any route that computes may answer."""

SPEC_ERRORS = (401, 422, 501, *COMPUTE_ERRORS)
"""What any route that computes a spec may answer."""


def spec_schema() -> dict[str, Any]:
    """A spec as a JSON object."""
    properties: dict[str, Any] = {"preset": _preset_schema()}
    for key in SPEC_KEYS:
        properties[key.name] = {**_schema(key), "description": _description(key)}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def spec_parameters() -> list[dict[str, Any]]:
    """A spec as query parameters."""
    preset = _parameter("preset", _preset_schema(), "Start from this preset; the other keys override it.")
    return [
        preset,
        *(_parameter(key.name, _schema(key), _description(key)) for key in SPEC_KEYS),
    ]


def parameter(name: str, description: str, *, default: str | None = None, required: bool = False) -> dict[str, Any]:
    """A text parameter of a route's own."""
    schema: dict[str, Any] = {"type": "string"}
    if default is not None:
        schema["default"] = default
    if required:
        schema["minLength"] = 1
    return {**_parameter(name, schema, description), "required": required}


def text_parameter(
    name: str, description: str, *, pattern: str | None, max_length: int, default: str
) -> dict[str, Any]:
    """A text of at most so many characters, which all look like a pattern where there is one."""
    schema: dict[str, Any] = {"type": "string", "maxLength": max_length, "default": default}
    if pattern is not None:
        schema["pattern"] = pattern
    return _parameter(name, schema, description)


def option_parameter(option: Option) -> dict[str, Any]:
    """An option of a format."""
    if option.choices:
        return choice_parameter(option.name, option.doc, option.choices, option.default)
    schema = {"type": "string", "pattern": f"^({option.pattern})$", "default": option.default}
    return _parameter(option.name, schema, option.doc)


def choice_parameter(name: str, description: str, choices: Sequence[str], default: str) -> dict[str, Any]:
    """A parameter that is one of a few words."""
    return _parameter(name, {"type": "string", "enum": list(choices), "default": default}, description)


def number_parameter(
    name: str, description: str, *, minimum: float, maximum: float, default: float | None = None
) -> dict[str, Any]:
    """A parameter that is a number; without a default where that is another for every request."""
    schema: dict[str, Any] = {"type": "number", "minimum": minimum, "maximum": maximum}
    if default is not None:
        schema["default"] = default
    return _parameter(name, schema, description)


def integer_parameter(name: str, description: str, *, minimum: float, maximum: float, default: int) -> dict[str, Any]:
    """A parameter that is an integer."""
    schema = {"type": "integer", "minimum": minimum, "maximum": maximum, "default": default}
    return _parameter(name, schema, description)


def _parameter(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "description": description, "schema": schema}


def _preset_schema() -> dict[str, Any]:
    return {"type": "string", "enum": [preset.name for preset in PRESETS]}


def _schema(key: SpecKey) -> dict[str, Any]:
    schema: dict[str, Any]
    if key.kind == "choice":
        schema = {"type": "string", "enum": list(key.choices)}
    elif key.kind == "bool":
        schema = {"type": "boolean"}
    elif key.kind == "widths":
        schema = {"type": "string", "pattern": r"^[0-9]+(x[0-9]+)?(,[0-9]+(x[0-9]+)?)*$"}
    else:
        schema = {"type": "integer" if key.kind == "int" else "number", "minimum": key.minimum, "maximum": key.maximum}
    return {**schema, "default": key.default}


def _description(key: SpecKey) -> str:
    """What a key says, what it takes, and which programs use it, or have another default."""
    said = f"{key.doc} {key.allowed[0].upper()}{key.allowed[1:]}."
    users = [name for name, program in PROGRAMS.items() if key.name in program.keys]
    others = [f"{name} {keys_of(name)[key.name].default}" for name in users if key.name in PROGRAMS[name].defaults]
    if key.name != "program" and len(users) < len(PROGRAMS):
        said += f" Used by {', '.join(users)}."
    return said + (f" Other defaults: {', '.join(others)}." if others else "")
