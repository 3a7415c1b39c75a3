"""Probes: is the server alive, can it compute, what has it counted.

They answer while every device is busy. `/healthz` and `/readyz` need no token (see `guard`), so they reveal nothing
about computations.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from chainrule import __version__
from chainrule.run import environment
from chainrule.settings import Settings
from chainrule.stats import kernel_name
from chainrule.web.answers import json_answer
from chainrule.web.compute import Compute
from chainrule.web.metrics import MEDIA_TYPE, Metrics
from chainrule.web.openapi import add_route
from chainrule.web.service import Service

NEVER_KEPT = {"cache-control": "no-store"}

UNREADY: dict[int | str, dict[str, Any]] = {
    503: {
        "description": "The same keys: a queue is full, a device hangs, or the server shuts down.",
        "content": {"application/json": {}},
    }
}

HANGS_AFTER = 3
"""A device hangs whose thread has been with one piece of work for so many times the longest deadline: past a deadline
work stops between two ops, so one op takes all this time, or never returns."""


def probes_router(service: Service) -> APIRouter:
    """`/healthz`, `/readyz` and `/metrics`."""
    router = APIRouter()
    watch(service.metrics, service.compute)

    async def healthz(request: Request) -> Response:  # noqa: ARG001 (the signature of a handler)
        return json_answer({"status": "ok", "version": __version__}, headers=NEVER_KEPT)

    async def readyz(request: Request) -> Response:  # noqa: ARG001 (the signature of a handler)
        compute = service.compute
        status = readiness(compute, service.settings)
        devices = [
            {
                **each._asdict(),
                "busy": slot.busy,
                "waiting": slot.waiting,
                "queue": slot.queue,
                "running_seconds": round(slot.running_seconds, 3),
            }
            for each, slot in zip(compute.devices, compute.slots.values(), strict=True)
        ]
        answer = {
            "ready": status == "ready",
            "status": status,
            "kernel": kernel_name(),
            "devices": devices,
            "sockets": service.metrics.open_sockets(),
            "shutting_down": compute.closing,
        }
        return json_answer(answer, status=200 if status == "ready" else 503, headers=NEVER_KEPT)

    async def metrics(request: Request) -> Response:  # noqa: ARG001 (the signature of a handler)
        return Response(service.metrics.text(), 200, NEVER_KEPT, MEDIA_TYPE)

    add_route(router, "/healthz", healthz, "Alive", "The event loop answers.", tag="health")
    add_route(router, "/readyz", readyz, "Ready", "Every device takes requests.", tag="health", more=UNREADY)
    add_route(
        router,
        "/metrics",
        metrics,
        "Metrics",
        "The counters of the server, in Prometheus' text format.",
        tag="health",
        errors=(401,),
        media_type=MEDIA_TYPE,
    )
    return router


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
    for device, slot in compute.slots.items():
        for name, doc, read in (
            ("queue_length", "Requests that wait for a device.", lambda slot: slot.waiting),
            ("queue_limit", "Maximum number of requests that wait for a device.", lambda slot: slot.queue),
            ("line_length", "Requests and live sockets that wait for a device.", lambda slot: slot.in_line),
            ("device_busy", "Whether a device computes.", lambda slot: slot.busy),
            (
                "device_running_seconds",
                "The running time of a device's current work.",
                lambda slot: slot.running_seconds,
            ),
        ):
            metrics.watch(name, doc, partial(read, slot), device=device)
    metrics.watch("live_kept_bytes", "Memory that live sockets keep between pictures.", lambda: compute.kept.bytes)
    metrics.watch("shutting_down", "Whether the server is shutting down.", lambda: compute.closing)
    metrics.watch(
        "build_info",
        "Always 1; the labels name the versions.",
        lambda: 1,
        version=__version__,
        torch=str(environment("cpu")["torch"]),
        kernel=kernel_name(),
    )
