"""`chainrule serve` in a process: its address, metrics, memory and end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import httpx
from prometheus_client.parser import text_string_to_metric_families

START_SECONDS = 110
"""Longest that a server may take to start: most of it is importing torch, on a machine that is busy."""

ENDS = ("done", "cancelled", "timed_out", "failed")
"""The ways in which accepted work ends; see `chainrule.web.metrics`."""


class Served:
    """A server on a loopback port, from `with` to the end of the block; it may be killed and started again in it."""

    def __init__(self, log: Path, *, port: int = 0, **settings: object) -> None:
        self.log = log
        self.port = port
        self.settings = settings

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def start(self) -> Self:
        """Start and wait until it is ready; a second start takes the port of the first."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("CHAINRULE_")}
        environment |= {f"CHAINRULE_{name.upper()}": str(value) for name, value in self.settings.items()}
        before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "chainrule", "serve", "--port", str(self.port)],
                # Some processors multiply float16 fast; here all are slow, as `loads.ENDLESS` needs.
                env=environment | {"PYTHONUNBUFFERED": "1", "ONEDNN_MAX_CPU_ISA": "AVX2"},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        said = re.compile(r"is at http://[^:]+:(\d+)")
        wait_for(
            lambda: self.process.poll() is not None or said.search(self._said(before)),
            START_SECONDS,
            "the server to start",
        )
        match = said.search(self._said(before))
        assert match, f"the server did not start:\n{self._said(before)}"
        self.port = int(match[1])
        wait_for(
            lambda: httpx.get(f"{self.url}/readyz", timeout=30).status_code == 200, START_SECONDS, "it to be ready"
        )
        return self

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def terminate(self) -> None:
        self.process.terminate()

    def wait(self, seconds: float) -> int:
        return self.process.wait(seconds)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.terminate()
            try:
                self.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()
                raise

    def metrics(self) -> Metrics:
        return Metrics(httpx.get(f"{self.url}/metrics", timeout=10).raise_for_status().text)

    def wait_idle(self, seconds: float) -> Metrics:
        seen = [self.metrics()]

        def is_idle() -> bool:
            seen.append(self.metrics())
            return seen[-1].in_hand == 0

        wait_for(is_idle, seconds, lambda: f"no work in hand, of {seen[-1].work()}")
        return seen[-1]

    @property
    def rss_bytes(self) -> int:
        return self._status("VmRSS")

    @property
    def peak_bytes(self) -> int:
        """Peak of `rss_bytes` since the start or `forget_peak`."""
        return self._status("VmHWM")

    def forget_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    @property
    def kernel_bytes(self) -> int:
        """Buffers of all TCP connections of this machine, in bytes."""
        match = re.search(r"^TCP:.* mem (\d+)$", Path("/proc/net/sockstat").read_text(), re.MULTILINE)
        assert match, "the kernel does not say"
        return int(match[1]) * os.sysconf("SC_PAGE_SIZE")

    @property
    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    @property
    def threads(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    def _status(self, name: str) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        match = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
        assert match, status
        return int(match[1]) << 10

    def _said(self, start: int) -> str:
        return self.log.read_bytes()[start:].decode(errors="replace")


class Metrics:
    def __init__(self, text: str) -> None:
        self.samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def total(self, name: str, **labels: str) -> float:
        """The sum of `chainrule_NAME` over all samples with these labels; 0 without samples."""
        found = (each for each in self.samples if each.name == f"chainrule_{name}")
        return sum(each.value for each in found if labels.items() <= each.labels.items())

    @property
    def in_hand(self) -> float:
        """Accepted work that has not ended."""
        ended = sum(self.total(f"work_{end}_total") for end in ENDS)
        return self.total("work_accepted_total") - ended

    def work(self) -> dict[str, float]:
        return {name: self.total(f"work_{name}_total") for name in ("accepted", *ENDS)}


def wait_for(condition: Callable[[], Any], seconds: float = 20, what: str | Callable[[], str] = "it") -> float:
    """Wait until a condition holds; returns the seconds that it took.

    Raises:
        TimeoutError: it does not hold in time.
    """
    start = time.monotonic()
    while not condition():
        if time.monotonic() - start > seconds:
            raise TimeoutError(f"waited {seconds} s for {what if isinstance(what, str) else what()}")
        time.sleep(0.02)
    return time.monotonic() - start
