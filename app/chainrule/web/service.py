"""State that all routes share, and how a request becomes a spec."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from chainrule.dump.opened import DumpFile, OpenDump
from chainrule.errors import SpecError, StoppedError
from chainrule.settings import Settings
from chainrule.spec import ModelSpec
from chainrule.spec.limits import check_device, check_limits, with_limits
from chainrule.spec.programs import DEFAULT
from chainrule.web.answers import JSON, is_fresh, not_modified, tagged
from chainrule.web.compute import Compute
from chainrule.web.metrics import Metrics
from chainrule.web.request_log import note_spec

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Service:
    """Settings, devices, metrics, open dumps and lessons of the server."""

    settings: Settings
    compute: Compute
    metrics: Metrics
    dumps: Sequence[OpenDump | DumpFile] = ()
    lessons: Sequence[Mapping[str, Any]] = ()

    def admit(self, spec: ModelSpec, form: str = "json") -> ModelSpec:
        """The spec itself, if it is within the limits for the format `form` and its device exists.

        Raises:
            LimitError: it asks for more than the settings allow.
            SpecError: the device is not there.
        """
        check_limits(spec, self.settings, form)
        check_device(spec, tuple(self.compute.slots))
        return spec

    def read(self, values: Mapping[str, object], form: str = "json") -> ModelSpec:
        """A spec from strings or JSON values, admitted.

        Raises:
            SpecError: see `ModelSpec.parse` and `admit`.
        """
        try:
            spec = ModelSpec.parse(values)
        except SpecError as error:
            layers = values.get("program", DEFAULT) == DEFAULT
            raise with_limits(error, self.settings, layers=layers) from None
        note_spec(spec)
        return self.admit(spec, form)

    async def answer(
        self,
        request: Request,
        tag: str,
        device: str,
        compute: Callable[[], bytes],
        media_type: str = JSON,
        seconds: float | None = None,
    ) -> Response:
        """The answer that `compute` makes, kept by clients under its entity tag; 304 if this one has it. See `run`."""
        if is_fresh(request.headers, tag):
            return not_modified(tag)
        return tagged(await self.run(request, device, compute, seconds), tag, media_type)

    async def run(self, request: Request, device: str, compute: Callable[[], T], seconds: float | None = None) -> T:
        """Compute a request's answer; stop when its client leaves. It may wait and compute for so many seconds.

        Raises:
            StoppedError: the client has gone, or the server is going.
            ChainruleError: see `ComputeSlot.run`.
        """
        gone = asyncio.create_task(_gone(request))
        seconds = self.settings.deadline_seconds if seconds is None else seconds
        ran = asyncio.create_task(self.compute.slots[device].run(compute, seconds))
        try:
            await asyncio.wait((gone, ran), return_when=asyncio.FIRST_COMPLETED)
            if ran.done():
                return ran.result()
            raise StoppedError("disconnected")
        finally:
            gone.cancel()
            ran.cancel()
            await asyncio.gather(gone, ran, return_exceptions=True)


async def _gone(request: Request) -> None:
    """Return when the client has closed its connection; drop the rest of its body."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
