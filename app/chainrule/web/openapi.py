"""The parts of the OpenAPI document that describe a route: its errors, and its keys as parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from chainrule.spec.keys import SPEC_KEYS, keys_of
from chainrule.spec.model_spec import PRESET_KEY
from chainrule.spec.programs import PROGRAMS
from chainrule.spec.values import Key
from chainrule.web.answers import JSON

OPENAPI_VERSION = "3.0.3"
"""The version that the packaged Swagger UI reads."""

ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {"type": "string", "description": "The kind of error, for programs."},
                "message": {
                    "type": "string",
                    "description": "The error in words: the key, the value and the allowed values.",
                },
                "field": {"type": "string", "description": "The wrong key."},
                "limit": {"description": "The allowed values."},
            },
        }
    },
}


def add_route(
    router: APIRouter,
    path: str,
    handler: Callable[..., Any],
    summary: str,
    description: str,
    *,
    tag: str,
    errors: Sequence[int] = (),
    media_type: str = JSON,
    parameters: Sequence[dict[str, Any]] = (),
    body: dict[str, Any] | None = None,
    name: str | None = None,
    methods: list[str] | None = None,
    more: Mapping[int | str, dict[str, Any]] = MappingProxyType({}),
) -> None:
    """Add a route with its description in the OpenAPI document.

    `body` is the schema of a request's body, `more` are responses beside 200 and the `errors`.
    """
    extra: dict[str, Any] = {}
    if parameters:
        extra["parameters"] = list(parameters)
    if body is not None:
        extra["requestBody"] = {"required": True, "content": {JSON: {"schema": body}}}
    responses: dict[int | str, dict[str, Any]] = {200: {"description": description, "content": {media_type: {}}}}
    for status in errors:
        responses[status] = {"description": ERRORS[status], "content": {JSON: {"schema": ERROR_SCHEMA}}}
    responses.update(more)
    router.add_api_route(
        path,
        handler,
        name=name,
        methods=methods,
        summary=summary,
        description=description,
        tags=[tag],
        # Routes build their responses themselves.
        response_class=Response,
        responses=responses,
        openapi_extra=extra,
    )


ERRORS = {
    400: "The request cannot be read.",
    401: "A token is needed.",
    404: "The name is unknown.",
    408: "The body has not arrived in time.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "A key is unknown, a value is malformed, or a limit is exceeded.",
    501: "An optional dependency, or the C++ extension, is not installed on the server.",
    503: "The device is busy (see Retry-After), or the server is shutting down.",
    504: "The computation takes longer than allowed.",
    507: "The host or the device ran out of memory.",
}

COMPUTE_ERRORS = (503, 504, 507)
"""The errors of any route that computes."""

SPEC_ERRORS = (401, 422, 501, *COMPUTE_ERRORS)
"""The errors of any route that computes a spec."""


def spec_schema() -> dict[str, Any]:
    """A spec as a JSON object."""
    properties = {key.name: {**key.schema(), "description": description} for key, description in _described_keys()}
    properties["preset"] = PRESET_KEY.schema()
    return {"type": "object", "additionalProperties": False, "properties": properties}


def spec_parameters() -> list[dict[str, Any]]:
    """A spec as query parameters."""
    keys = [{**parameter(key), "description": description} for key, description in _described_keys()]
    return [{**parameter(PRESET_KEY), "description": PRESET_KEY.doc}, *keys]


def parameter(key: Key) -> dict[str, Any]:
    """A key as a query parameter."""
    return {
        "name": key.name,
        "in": "query",
        "required": key.required,
        "description": key.description,
        "schema": key.schema(),
    }


def _described_keys() -> Iterator[tuple[Key, str]]:
    """Every key of a spec and its description, with the programs that use it or give it another default."""
    for key in SPEC_KEYS:
        description = key.description
        users = [name for name, program in PROGRAMS.items() if key.name in program.keys]
        others = [f"{name} {keys_of(name)[key.name].default}" for name in users if key.name in PROGRAMS[name].defaults]
        if key.name != "program" and len(users) < len(PROGRAMS):
            description += f" Used by {', '.join(users)}."
        yield key, description + (f" Other defaults: {', '.join(others)}." if others else "")
