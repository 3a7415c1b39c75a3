"""The load battery's figures as the table of docs/reliability.md: the worst figure of each row, and missed goals.

    python tests/shared/load_table.py        make bench/results/load.md from bench/results/load.json, and show it

`make load` runs this at its end. The marks in docs/reliability.md enclose a copy of that file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]

FIGURES = ROOT / "bench" / "results" / "load.json"

TABLE = FIGURES.with_suffix(".md")

HEAD = "| test | command | settings | worst result |\n|---|---|---|---|\n"

NONE = "not measured"

MISSED = " (**missed**)"


class Row(NamedTuple):
    """One row.

    Attributes:
        what: the test of the server.
        says: parts of the last column; `{decimals:pattern}` is the worst of the figures whose full name matches the
            pattern.
        settings: the settings other than the defaults, as environment variables.
    """

    what: str
    says: tuple[str, ...]
    settings: str = "defaults"


ROWS: dict[str, Row] = {
    "fuzz": Row(
        "requests inside and outside the API's description, by schemathesis with all checks",
        ("{0:cases} requests to {0:operations} operations, {0:failures} failures",),
        "`CHAINRULE_DEADLINE_SECONDS=2`",
    ),
    "health": Row(
        "`/healthz` every 50 ms, while the device computes without pause",
        ("median {0:p50} ms", "99th percentile {0:p99} ms", "slowest {0:slowest} ms, from the planned time"),
    ),
    "sliders": Row(
        "1, 4 and 30 sliders with 60 values per second: two layers; fifty layers of 100, also with one request in "
        "flight",
        (
            "two layers: {0:1 × default, .*: slowest client}, {0:4 × default, .*: slowest client} and "
            "{1:30 × default, .*: slowest client} pictures/s for the slowest client",
            "fifty layers: {0:1 × fifty, .*: slowest client}, {1:4 × fifty, .*: slowest client} and "
            "{1:30 × fifty, .*: slowest client}, at least {2:.*: slowest client, of an even share} of an even share of "
            "the rate of a single client",
            "each client ends with its own last value, after {1:.*: last value shown after} s",
        ),
    ),
    "aborts": Row(
        "requests that clients close at random moments, until 20 were closed while they were computed",
        (
            "{0:requests} requests",
            "the slot is free after {1:slot is free after the last abort} s",
            "{0:descriptors more than before} descriptors and {0:threads more than before} threads are left",
        ),
        "`CHAINRULE_MAX_FLOPS=10000000000000`",
    ),
    "slow_clients": Row(
        "50 slow senders; 20 readers that read nothing, 20 that read a little; 4 live sockets that read nothing; "
        "1,500 connections that send nothing",
        (
            "closed after {1:50 slow .*: last closed after}, {1:20 readers that take nothing: last closed after}, "
            "{1:20 readers that take a little: last closed after} and {1:4 live .*: last closed after} s",
            "until then at most {0:20 readers .*: memory at most} MiB more memory, and "
            "{0:20 readers .*: kernel memory at most} MiB in the kernel",
            "afterwards {0:.*: memory kept} MiB more",
            "other clients wait {1:.*: slowest picture of others} s for a picture, {1:.*: slowest request of others} s "
            "for an answer",
            "`/healthz` among 1,500 connections: {0:1500 silent connections: slowest health} ms, "
            "with at most {0:1500 silent connections: open at most} open, and "
            "{0:1500 silent connections: open once all have come} after all have connected",
        ),
    ),
    "floods": Row(
        "4 clients that send a body in chunks of one byte, with and without the token; 16 sockets with bursts of "
        "50,000 empty messages; `/healthz` every 50 ms meanwhile",
        (
            "99th percentile {0:chunks of one byte: p99}, {0:chunks of one byte without the token: p99} and "
            "{0:empty messages: p99} ms",
            "at most {2:.*: log} MB of log",
        ),
    ),
    "crash": Row(
        "`kill -9` and start; SIGTERM with open requests and sockets; two replicas that restart in turn without notice",
        (
            "correct picture {1:kill -9: right picture after the server is back} s after the start",
            "the process ends after {1:SIGTERM .*: ends after} s",
            "correct picture after {1:rolling restart: right picture after} s, "
            "{0:rolling restart: plain requests to repeat} requests to repeat",
        ),
        "SIGTERM: `CHAINRULE_MAX_FLOPS=10000000000000`",
    ),
    "network": Row(
        "200 ms delay in each direction, random breaks, silent, half-closed and slow connections, one of two replicas "
        "lost",
        ("correct picture within {1:.*: last value shown after} s", "{0:work failed} computations failed"),
    ),
    "budgets": Row(
        "specs near every limit, by hypothesis; a spec that takes half a minute, with the default deadline",
        (
            "answered, refused or stopped within {1:(?:nets|products): slowest answer} s",
            "with the default deadline of 10 s within {1:default deadline: answered after} s",
            "memory at most {2:.*: memory ÷ estimate, at most} of the estimate",
        ),
        "`CHAINRULE_DEADLINE_SECONDS=3`; default deadline: `CHAINRULE_MAX_FLOPS=10000000000000`",
    ),
    "overload": Row(
        "100 heavy requests at once",
        (
            "{0:answered} answered, {0:refused with Retry-After} refused with Retry-After, the last after "
            "{1:slowest answer of any kind} s",
            "a client that waits as told gets its answer after {1:who obeys .*} s",
        ),
    ),
    "soak": Row(
        "ten minutes of all of these together",
        (
            "memory between heavy passes {0:memory in minutes 3 and 4} → {0:memory in the last two minutes} MiB, "
            "at rest {0:memory at rest after two minutes} → {0:memory at rest at the end}, at most {0:most memory}",
            "{0:descriptors gained} descriptors and {0:threads gained} threads more than before",
            "{0:answers} answers, {0:unplanned answers} of them unexpected, the slowest after "
            "{1:slowest operation of any client} s",
            "{2:pictures stopped at the deadline} % of the pictures stopped at the deadline",
            "accepted = done + cancelled + timed out + failed",
        ),
    ),
}

PLACE = re.compile(r"\{([0-9]):((?:[^{}]|\{[^}]*\})*)\}")


def worst(figures: Sequence[Mapping[str, Any]], row: str, name: str) -> Mapping[str, Any] | None:
    """The figure of a row and name that is farthest from its goal; None if there is no figure.

    The worst is the least where more is better. Figures that missed their goal come first.
    """
    found = [each for each in figures if each["row"] == row and re.fullmatch(name, each["name"])]
    return min(
        found,
        key=lambda each: (each["met"], each["value"] if each["goal"].startswith(">") else -each["value"]),
        default=None,
    )


def table(figures: Sequence[Mapping[str, Any]]) -> str:
    def cell(name: str) -> str:
        says = "; ".join(ROWS[name].says)

        def place(match: re.Match[str]) -> str:
            figure = worst(figures, name, match[2])
            return NONE if figure is None else f"{figure['value']:,.{match[1]}f}" + ("" if figure["met"] else MISSED)

        missed = {each["name"] for each in figures if each["row"] == name and not each["met"]}
        said = {
            figure["name"] for match in PLACE.finditer(says) if (figure := worst(figures, name, match[2])) is not None
        }
        return "; ".join([PLACE.sub(place, says), *(f"{each}{MISSED}" for each in sorted(missed - said))])

    return HEAD + "".join(
        f"| {row.what} | `make load ONLY={name}` | {row.settings} | {cell(name)} |\n" for name, row in ROWS.items()
    )


def write() -> str:
    made = table(json.loads(FIGURES.read_text(encoding="utf-8"))["figures"])
    TABLE.write_text(made, encoding="utf-8")
    return made


if __name__ == "__main__":
    print(write(), end="")
