"""Candidates that take turns, each in a process of its own.

Some tools wrap torch's functions for good or leave hooks on the model: separate processes keep that from the others and
from the bare pass. A parent lets one process run at a time, so that all share the rounds and a busy neighbour slows all
of them. A candidate that fails has a reason instead of times.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from timing import quartiles

WORKER = Path(__file__).with_name("worker.py")
LIMIT = 120
"""Seconds of wall time that the calls of one turn may take."""

START_LIMIT = 600
"""Seconds for everything before the first call: the processes of a model all import at once."""

MIN_ROUNDS = 3
"""Rounds of the slowest candidates: quartiles of three values lie halfway from the middle one to its neighbours."""

MAX_ROUNDS = 30

QUIET = {"WANDB_ERROR_REPORTING": "false"}
"""torchexplorer imports wandb, which would report its errors over the network."""


def environment_with(settings: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that is measured: the user's own settings of Chainrule do not count."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("CHAINRULE_")}
    return inherited | QUIET | dict(settings)


class MeasurementError(Exception):
    """A candidate cannot be measured; the message says why."""


@dataclass
class Candidate:
    """`run(calls)` gives the CPU seconds per call; `times` has them by round, `failure` says why there are no more."""

    run: Callable[[int], float]
    facts: dict[str, Any] = field(default_factory=dict)
    times: dict[int, float] = field(default_factory=dict)
    spent: float = 0.0
    failure: str | None = None

    def take_turn(self, number: int, calls: int) -> None:
        """Measure in round `number`; a failure ends this candidate."""
        try:
            seconds = self.run(calls)
        except MeasurementError as error:
            self.failure = str(error)
            return
        self.times[number] = seconds
        self.spent += seconds * calls

    def warm_up(self) -> None:
        """Run what only the first call does."""
        try:
            if self.failure is None:
                self.run(1)
        except MeasurementError as error:
            self.failure = str(error)

    def wants_more(self, seconds: float) -> bool:
        """Whether it has neither failed nor had its share of the time."""
        return self.failure is None and (len(self.times) < MIN_ROUNDS or self.spent < seconds)


def take_turns(candidates: Mapping[str, Candidate], reference: str, calls: int, seconds: float) -> None:
    """Measure in rounds until each candidate has had `seconds` of CPU time, the slow ones at least three rounds.

    The reference is part of every round; who has had enough sits out. The order alternates.
    """
    for candidate in candidates.values():
        candidate.warm_up()
    for number in range(MAX_ROUNDS):
        playing = [name for name, each in candidates.items() if name == reference or each.wants_more(seconds)]
        if candidates[reference].failure is not None or (
            playing == [reference] and not candidates[reference].wants_more(seconds)
        ):
            return
        for name in playing if number % 2 else reversed(playing):
            candidates[name].take_turn(number, calls)


def ratio_to(candidate: Candidate, reference: Candidate) -> tuple[float, float, float] | None:
    """Median and quartiles over the rounds that both have measured; None for a candidate that has failed."""
    shared = candidate.times.keys() & reference.times.keys()
    if candidate.failure is not None or not shared:
        return None
    return quartiles([candidate.times[number] / reference.times[number] for number in sorted(shared)])


class Worker:
    """A process that runs some candidates on one model, see worker.py."""

    def __init__(self, model: str, names: Sequence[str], settings: Mapping[str, str] | None = None) -> None:
        self._over: str | None = None
        self._process = subprocess.Popen(
            [sys.executable, str(WORKER), model, *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment_with(settings or {}),
        )

    def facts(self) -> dict[str, Any]:
        """Facts about its candidates, once all are prepared; raises the errors of `answer`."""
        return self.answer(START_LIMIT)

    def answer(self, limit: float) -> dict[str, Any]:
        """The next line that the process writes, within so many seconds.

        Raises:
            MeasurementError: it says that it cannot, it ended, or it says nothing within the limit.
        """
        late = threading.Event()

        def stop() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(limit, stop)
        timer.start()
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        timer.cancel()
        if late.is_set():
            raise MeasurementError(f"no answer within {limit} s")
        if not line:
            raise MeasurementError(f"the process ended with exit code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "failure" in answer:
            raise MeasurementError(answer["failure"])
        return answer

    def run(self, name: str, calls: int) -> float:
        """CPU seconds per call of one of its candidates.

        Raises:
            MeasurementError: as `answer` does, and when another candidate's failure has ended the process.
        """
        if self._over is not None:
            raise MeasurementError(self._over)
        assert self._process.stdin is not None
        try:
            print(name, calls, file=self._process.stdin, flush=True)
            return float(self.answer(LIMIT)["seconds"])
        except BrokenPipeError:
            reason = f"the process ended with exit code {self._process.wait()}"
        except MeasurementError as error:
            reason = str(error)
        self._over = f"its process ended with {name}: {reason}"
        raise MeasurementError(reason)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def workers(
    model: str, groups: Sequence[tuple[Mapping[str, str], Mapping[str, str]]]
) -> Iterator[dict[str, Candidate]]:
    """The candidates of some processes, one for each group: its candidates by the name they get, and its environment.

    `({"fallback": "trace"}, {"CHAINRULE_KERNEL": "torch"})` is the candidate `trace` of worker.py under another name.
    Their temporary files are removed here: a killed process removes nothing.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        started = [
            (group, Worker(model, list(group.values()), {**settings, "TMPDIR": folder})) for group, settings in groups
        ]
        try:
            candidates = {}
            for group, worker in started:
                failure, facts = None, {}
                try:
                    facts = worker.facts()
                except MeasurementError as error:
                    failure = str(error)
                for name, inner in group.items():
                    run = _runner(worker, inner)
                    candidates[name] = Candidate(run, facts.get(inner, {}), failure=failure)
            yield candidates
        finally:
            for _, worker in started:
                worker.close()


def _runner(worker: Worker, name: str) -> Callable[[int], float]:
    return lambda calls: worker.run(name, calls)
