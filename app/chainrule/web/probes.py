"""Probes: is the server alive, can it compute, what has it counted.

They answer while every device is busy. `/healthz` and `/readyz` need no token (see `guard`), so they reveal nothing
about computations.
"""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from chainrule import __version__
from chainrule.run import environment
from chainrule.settings import Settings
from chainrule.stats import kernel_name
from chainrule.web.answers import json_answer
from chainrule.web.compute import Compute, ComputeSlot
from chainrule.web.metrics import MEDIA_TYPE, Metrics
from chainrule.web.openapi import add_route
from chainrule.web.service import Service

NEVER_KEPT = {"cache-control": "no-store"}

UNREADY: dict[int | str, dict[str, Any]] = {
    503: {
        "description": "The same keys: a line is full, a device hangs, or the server shuts down.",
        "content": {"application/json": {}},
    }
}

HANGS_AFTER = 3
"""A device hangs whose thread has been with one piece of work for so many times the longest deadline: past a deadline
work stops between two ops, so one op takes all this time, or never returns."""


def probes_router(service: Service) -> APIRouter:
    """`/healthz`, `/readyz` and `/metrics`."""
    router = APIRouter()
    probes = Probes(service)
    watch(service.metrics, service.compute)
    add_route(router, "/healthz", probes.healthz, "Alive", "The event loop answers.", tag="health")
    add_route(router, "/readyz", probes.readyz, "Ready", "Every device takes requests.", tag="health", more=UNREADY)
    add_route(
        router,
        "/metrics",
        probes.metrics,
        "Metrics",
        "What the server counts, in Prometheus' text format.",
        tag="health",
        errors=(401,),
        media_type=MEDIA_TYPE,
    )
    return router


class Probes:
    """The handlers, and what they share."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def healthz(self, request: Request) -> Response:  # noqa: ARG002 (the signature of a handler)
        """GET /healthz."""
        return json_answer({"status": "ok", "version": __version__}, headers=NEVER_KEPT)

    async def readyz(self, request: Request) -> Response:  # noqa: ARG002 (the signature of a handler)
        """GET /readyz: 503 while one more request might not be computed; `kernel` is what takes statistics."""
        compute = self.service.compute
        status = readiness(compute, self.service.settings)
        answer = {
            "ready": status == "ready",
            "status": status,
            "kernel": kernel_name(),
            "devices": [
                {
                    "name": each.name,
                    "description": each.description,
                    "busy": slot.busy,
                    "waiting": slot.waiting,
                    "queue": slot.queue,
                    "running_seconds": round(slot.running_seconds, 3),
                }
                for each, slot in ((each, compute.slots[each.name]) for each in compute.devices)
            ],
            "sockets": self.service.metrics.open_sockets(),
            "shutting_down": compute.closing,
        }
        return json_answer(answer, status=200 if status == "ready" else 503, headers=NEVER_KEPT)

    async def metrics(self, request: Request) -> Response:  # noqa: ARG002 (the signature of a handler)
        """GET /metrics."""
        return Response(self.service.metrics.text(), 200, NEVER_KEPT, MEDIA_TYPE)


def readiness(compute: Compute, settings: Settings) -> str:
    """`ready`, or why not, the gravest first: `shutting down`, `hanging`, `busy`."""
    slots = compute.slots.values()
    patience = HANGS_AFTER * max(settings.deadline_seconds, settings.live_deadline_seconds)
    if compute.closing:
        return "shutting down"
    if any(slot.running_seconds > patience for slot in slots):
        return "hanging"
    return "busy" if any(slot.full for slot in slots) else "ready"


def watch(metrics: Metrics, compute: Compute) -> None:
    """Have the metrics show what is known elsewhere: each device's line and thread, and what runs here."""
    for slot in compute.slots.values():
        _watch_slot(metrics, slot)
    metrics.watch("live_kept_bytes", "What live sockets keep between pictures.", lambda: compute.kept.bytes)
    metrics.watch("shutting_down", "Whether the server is told to stop.", lambda: compute.closing)
    metrics.watch(
        "build_info",
        "1; what runs here is in the labels.",
        lambda: 1,
        version=__version__,
        torch=str(environment("cpu")["torch"]),
        kernel=kernel_name(),
    )


def _watch_slot(metrics: Metrics, slot: ComputeSlot) -> None:
    device = slot.device
    metrics.watch("queue_length", "Requests that wait for a device.", lambda: slot.waiting, device=device)
    metrics.watch("queue_limit", "Requests that may wait for a device.", lambda: slot.queue, device=device)
    metrics.watch(
        "line_length", "Everyone who waits for a device, live sockets too.", lambda: slot.in_line, device=device
    )
    metrics.watch("device_busy", "Whether a device computes.", lambda: slot.busy, device=device)
    metrics.watch(
        "device_running_seconds",
        "How long a device's thread has been with the work it does now.",
        lambda: slot.running_seconds,
        device=device,
    )
