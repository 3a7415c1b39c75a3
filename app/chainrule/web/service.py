"""What the routes share, and how a request becomes a spec."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from starlette.requests import Request

from chainrule.errors import SpecError
from chainrule.limits import check_device, check_limits, with_limits
from chainrule.presets import PRESETS
from chainrule.rules import RULES
from chainrule.settings import Settings
from chainrule.spec import SPEC_KEYS, ModelSpec, read_query
from chainrule.web.compute import Compute


@dataclass(frozen=True, slots=True)
class Service:
    """The settings the server runs under and the devices it computes on."""

    settings: Settings
    compute: Compute

    def admit(self, spec: ModelSpec) -> ModelSpec:
        """The spec itself, once it is known to be affordable and its device to exist.

        Raises:
            LimitError: it asks for more than the settings allow.
            SpecError: the device is not there.
        """
        check_limits(spec, self.settings)
        check_device(spec, self.compute.device_names)
        return spec

    def read(self, values: Mapping[str, object]) -> ModelSpec:
        """A spec from strings or JSON values, admitted.

        Raises:
            SpecError: see `ModelSpec.parse` and `admit`.
        """
        try:
            spec = ModelSpec.parse(values)
        except SpecError as error:
            raise with_limits(error, self.settings) from None
        return self.admit(spec)

    def read_request(self, request: Request, also: Iterable[str] = ()) -> tuple[ModelSpec, dict[str, str]]:
        """The spec in a query string, and the values of keys that are not the spec's but the route's own.

        Raises:
            SpecError: see `read`.
        """
        values = read_query(request.scope["query_string"].decode("latin-1"))
        own = {name: values.pop(name) for name in also if name in values}
        return self.read(values), own


def keys_list() -> list[dict[str, Any]]:
    """The table of the spec's keys, as JSON shows it."""
    return [
        {
            "name": key.name,
            "default": key.default,
            "kind": key.kind,
            "choices": list(key.choices),
            "minimum": key.minimum,
            "maximum": key.maximum,
            "doc": key.doc,
        }
        for key in SPEC_KEYS
    ]


def presets_list() -> list[dict[str, Any]]:
    """The presets, as JSON shows them; `spec` holds the keys that differ from the default, `query` is canonical."""
    entries = []
    for preset in PRESETS:
        spec = ModelSpec.parse(preset.spec)
        values = spec.as_dict()
        entries.append(
            {
                "name": preset.name,
                "title": preset.title,
                "spec": {key.name: values[key.name] for key in SPEC_KEYS if key.name in preset.spec},
                "query": spec.query(),
                "focus": preset.focus,
                "statistic": preset.statistic,
                "theory": preset.theory,
                "printed": preset.printed,
                "band": {statistic: list(band) for statistic, band in preset.band.items()},
                "note": preset.note,
            }
        )
    return entries


def rules_dict() -> dict[str, Any]:
    """The rules behind figures, bands and verdicts, as JSON shows them."""
    return asdict(RULES)


def limits_dict(settings: Settings) -> dict[str, int]:
    """The limits of a spec on this server, as JSON shows them."""
    return {
        "depth": settings.max_depth,
        "width": settings.max_width,
        "batch": settings.max_batch,
        "flops": settings.max_flops,
        "memory_bytes": settings.max_memory_bytes,
    }
