"""What the routes share, and how a request becomes a spec."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from starlette.requests import Request

from chainrule.errors import SpecError
from chainrule.limits import check_device, check_limits, with_limits
from chainrule.page.opened import OpenDump
from chainrule.programs import DEFAULT
from chainrule.settings import Settings
from chainrule.spec import ModelSpec, read_query
from chainrule.web.compute import Compute


@dataclass(frozen=True, slots=True)
class Service:
    """The settings the server runs under, the devices it computes on, and the dump that it was opened with, if any."""

    settings: Settings
    compute: Compute
    dump: OpenDump | None = None

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
            layers = values.get("program", DEFAULT) == DEFAULT
            raise with_limits(error, self.settings, layers=layers) from None
        return self.admit(spec)

    def read_request(self, request: Request, also: Iterable[str] = ()) -> tuple[ModelSpec, dict[str, str]]:
        """The spec in a query string, and the values of keys that are not the spec's but the route's own.

        Raises:
            SpecError: see `read`.
        """
        values = read_query(request.scope["query_string"].decode("latin-1"))
        own = {name: values.pop(name) for name in also if name in values}
        return self.read(values), own
