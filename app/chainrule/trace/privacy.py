"""People share traces: secrets in the source code are masked, and folders of this machine are left out."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections import Counter
from functools import cache, lru_cache
from pathlib import Path

from chainrule.trace.graph import Op, Trace
from chainrule.trace.records import Records

SOURCES = ("none", "line", "context")
"""How much source code a trace holds: none, the line of each op, or also the lines around it."""

MASK = "•••"

_KEY = re.compile(
    r"(?<![\w-])(?:"  # a word begins with the key: sk- is also in task-specific
    r"A(?:KIA|SIA)[0-9A-Z]{16}"  # Amazon
    r"|AIza[\w-]{30,}|ya29\.[\w-]{20,}"  # Google
    r"|gh[oprsu]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|npm_[A-Za-z0-9]{20,}"  # GitHub, GitLab, npm
    r"|hf_[A-Za-z0-9]{20,}"  # Hugging Face
    r"|sk-[\w-]{16,}|[rs]k_(?:live|test)_\w{16,}"  # OpenAI, Anthropic, Stripe
    r"|xox[abeoprs]-[\w-]{10,}|hooks\.slack\.com/services/[\w/]+"  # Slack
    r"|eyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?)"  # JSON web tokens
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*"
    r"|(?<=://)[^\s/:@'\"]*:[^\s/'\"]+(?=@)"  # user:password@host
    r"|(?<=[?&])[\w-]{0,40}(?i:token|key|secret|password|signature)=[^\s&'\"]{6,}"  # in an address
)
"""The forms of well-known keys."""

_NAME = (
    r"(?:passw(?:or)?ds?|passphrase|passcode|pwd|(?:\b|_)pw|secrets?|credentials?|(?:\b|_)auth(?:orization)?"
    r"|(?:api|access|account|auth|encryption|private|secret|signing|storage)[-_ ]?keys?)"
)
"""The end of a name whose value is a secret."""

_BETWEEN = (
    r"""["']?\]?\s{0,4}(?::\s{0,4}[\w.\[\]| ]{1,40}=|=|:|(?<=["'])\s{0,4},\s{0,4}(?:\w{1,20}=)?)"""
    r"""\s{0,4}[(\[]?[rbfu]{0,2}"""
)
"""From a name to its value: `name: str =`, `"name":`, `environ["NAME"] =`, `"--name", default=`."""

_LITERAL = (
    r"""(?P<quote>\"{3}|'{3}|["'])(?!<[^<>]*>|\{|%|\$\{|\.{3})(?P<value>(?:\\.|(?!(?P=quote)).){4,2000})(?P=quote)"""
)
"""A text in quotes that is no placeholder such as <key> or {key}."""

_NAMED = re.compile(rf"(?P<name>{_NAME}{_BETWEEN}){_LITERAL}", re.IGNORECASE)
_TOKEN = re.compile(rf"(?P<name>token{_BETWEEN})(?=['\"]+[^'\"]*\d){_LITERAL}", re.IGNORECASE)
"""A token is also a piece of text: its value is a secret only with a digit."""

_COMMENT = re.compile(rf"(?P<name>#.*?\b{_NAME}\s{{0,4}}[:=]\s{{0,4}})(?P<value>[^\s'\"]{{6,}})", re.IGNORECASE)
_CALL = re.compile(r"(?:\b(?:login|authenticate)\s?\(|\bauth\s?=\s?\()[^()]{0,200}", re.IGNORECASE)
_QUOTED = re.compile(_LITERAL)
_LONG = re.compile(r"[A-Za-z0-9+/_=-]{32,}")
_FOLDERS = r"(?:[A-Za-z]:)?[/\\](?:[^\s/\\'\"<>|]+[/\\])+(?=[^\s/\\])"
_QUOTED_FOLDERS = re.compile(rf"(?<=[\"']){_FOLDERS}")
_ANY_FOLDERS = re.compile(rf"(?:file://|(?<![\w/:.~…-])){_FOLDERS}")
"""The folders of an absolute path: /home/ann/ in /home/ann/net.py."""

RANDOM_BITS = 4.2
"""Entropy of the letters of a text, in bits, above which it is no name but drawn at random."""

HEX_DIGITS = frozenset("0123456789abcdefABCDEF")


@lru_cache(maxsize=4096)
def masked(text: str) -> str:
    """A line of code without what looks like a secret, and without the folders of files.

    Masked are well-known keys, values of names such as password, and long random texts.
    """
    text = _KEY.sub(MASK, _without_home(text))
    for named in (_NAMED, _TOKEN):
        text = named.sub(rf"\g<name>\g<quote>{MASK}\g<quote>", text)
    text = _COMMENT.sub(rf"\g<name>{MASK}", text)
    text = _CALL.sub(lambda call: _QUOTED.sub(rf"\g<quote>{MASK}\g<quote>", call[0]), text)
    text = _LONG.sub(lambda found: MASK if _is_random(found) else found[0], text)
    return _QUOTED_FOLDERS.sub("…/", text)


def _is_random(found: re.Match[str]) -> bool:
    """Whether a long text looks as if it was drawn at random, and is no name in the code."""
    text, before = found[0], found.string[: found.start()]
    if text.isidentifier() and before.strip() and before[-1] not in "\"'" and "#" not in before:
        return False
    return any(_is_drawn(part) for part in text.split("/"))


def _is_drawn(text: str) -> bool:
    digits = sum(letter.isdigit() for letter in text)
    words = re.split("[-_]", text)
    if len(text) < 24 or not 4 <= digits < len(text) or (len(words) > 2 and max(map(len, words)) <= 12):
        return False
    if HEX_DIGITS.issuperset(text):
        return True
    counts = Counter(text).values()
    bits = -sum(count / len(text) * math.log2(count / len(text)) for count in counts)
    return bits > RANDOM_BITS and text != text.lower() and text != text.upper()


@cache
def _home() -> str:
    """The home of the user, with a separator at its end. Empty: there is none, or it is the root."""
    try:
        return _as_prefix(str(Path.home()))
    except RuntimeError:
        return ""


def _as_prefix(folder: str) -> str:
    return os.path.join(folder, "") if os.path.dirname(folder) != folder else ""


def _without_home(text: str) -> str:
    return text.replace(_home(), f"~{os.sep}") if _home() else text


def private(text: str) -> str:
    """A message without secrets and without this machine's folders: `…/net.py:12: it failed`."""
    try:
        current = _as_prefix(os.getcwd())
    except OSError:
        current = ""
    return _without_folders(text, current)


@lru_cache(maxsize=1024)
def _without_folders(text: str, current: str) -> str:
    for folder in (current, _home()):
        text = text.replace(folder, "…/") if folder else text
    return _ANY_FOLDERS.sub("…/", masked(text))


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
