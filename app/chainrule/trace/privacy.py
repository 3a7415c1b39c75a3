"""People share traces: secrets in the source code are masked, and folders of this machine are left out."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections import Counter
from functools import lru_cache
from pathlib import Path

from chainrule.trace.graph import Op, Trace
from chainrule.trace.records import Records

SOURCES = ("none", "line", "context")
"""How much source code a trace holds: none, the line of each op, or also the lines around it."""

MASK = "•••"

HOME = os.path.join(Path.home(), "")

KEYS = (
    r"A(?:KIA|SIA)[0-9A-Z]{16}",  # Amazon
    r"AIza[\w-]{30,}|ya29\.[\w-]{20,}",  # Google
    r"gh[oprsu]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}",  # GitHub, GitLab
    r"hf_\w{20,}",  # Hugging Face
    r"sk-[\w-]{16,}|[rs]k_(?:live|test)_\w{16,}",  # OpenAI, Anthropic, Stripe
    r"xox[abeoprs]-[\w-]{10,}",  # Slack
    r"eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?",  # JSON web tokens
)
"""The forms of well-known keys."""

# A word begins with the key: sk- is also in task-specific.
_KEY = re.compile(
    rf"(?<![\w-])(?:{'|'.join(KEYS)})"
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*"
    r"|(?<=://)[^\s/:@'\"]*:[^\s/@'\"]+(?=@)"  # user:password@host
)

_NAMED = re.compile(
    r"""((?:passw(?:or)?d|passphrase|pwd|secret|token|credential|auth|(?:api|access|private|secret)[-_ ]?key)\w{0,40}
        ["']?\]?\s*(?::\s*str\s*)?(?:=|:|,)\s*[rbfu]{0,2})   # a name with = or : after it, or as an argument
        (["'])(?![<\[{$%])((?:(?!\2).){4,})\2                # no placeholder such as <pad> or {token}
    """,
    re.IGNORECASE | re.VERBOSE,
)
_CALLED = re.compile(r"""(\b(?:login|authenticate)\(\s*)(["'])((?:(?!\2).){4,})\2""", re.IGNORECASE)
_LONG = re.compile(r"[A-Za-z0-9+/_=-]{32,}")

RANDOM_BITS = 4.2
"""Entropy of the letters of a text, in bits, above which it is no name but drawn at random."""

HEX_DIGITS = frozenset("0123456789abcdefABCDEF")


@lru_cache(maxsize=4096)
def masked(text: str) -> str:
    """A text without what looks like a secret: well-known keys, values of names such as password, long random texts.

    The user's home is `~`.
    """
    text = _KEY.sub(MASK, text.replace(HOME, f"~{os.sep}"))
    text = _NAMED.sub(rf"\1\2{MASK}\2", text)
    text = _CALLED.sub(rf"\1\2{MASK}\2", text)
    return _LONG.sub(lambda found: MASK if _is_random(found[0]) else found[0], text)


def _is_random(text: str) -> bool:
    digits = sum(letter.isdigit() for letter in text)
    if not 4 <= digits < len(text):
        return False
    if HEX_DIGITS.issuperset(text):
        return True
    counts = Counter(text).values()
    bits = -sum(count / len(text) * math.log2(count / len(text)) for count in counts)
    return bits > RANDOM_BITS and text != text.lower() and text != text.upper()


_FOLDERS = re.compile(r"(?<![\w/:.~…-])(?:[A-Za-z]:)?[/\\](?:[^\s/\\'\"<>|]+[/\\])+(?=[^\s/\\])")
"""The folders of an absolute path: /home/ann/ in /home/ann/net.py."""


def private(text: str) -> str:
    """A message without secrets and without this machine's folders: `…/net.py:12: it failed`."""
    return _without_folders(text, os.getcwd())


@lru_cache(maxsize=1024)
def _without_folders(text: str, current: str) -> str:
    return _FOLDERS.sub("…/", masked(text.replace(os.path.join(current, ""), "…/").replace(HOME, "…/")))


def private_trace(trace: Trace) -> Trace:
    """A trace whose messages and environment are `private`, to be written into a file."""
    error = trace.error
    return dataclasses.replace(
        trace,
        error=None if error is None else dataclasses.replace(error, message=private(error.message)),
        faults=tuple(dataclasses.replace(fault, message=private(fault.message)) for fault in trace.faults),
        environment={
            name: private(value) if isinstance(value, str) else value for name, value in trace.environment.items()
        },
    )


def with_sources(trace: Trace, sources: str) -> Trace:
    """A trace with less source code: one of `SOURCES`."""
    if sources == "context":
        return trace
    if sources == "line":
        return dataclasses.replace(trace, sources={})
    ops = Records(Op, [{**vars(op), "source": None} for op in trace.ops])
    faults = tuple(dataclasses.replace(fault, source=None) for fault in trace.faults)
    return dataclasses.replace(trace, ops=ops, faults=faults, sources={})
