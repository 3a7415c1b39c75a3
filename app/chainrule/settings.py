"""Every setting of the server and the command line, one table: environment variables `CHAINRULE_*`."""

from __future__ import annotations

import ipaddress
import re
import secrets
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

LogLevel = Literal["critical", "error", "warning", "info", "debug"]
LogFormat = Literal["text", "json"]

TOKEN_PATTERN = re.compile(r"[A-Za-z0-9._~-]{8,256}")
"""A token consists of characters that need no escaping in links."""

NAME_PATTERN = re.compile(r"[\w.@+-]{1,64}")
"""The name of a person, as the log shows it."""

SPARE_DESCRIPTORS = 200
"""File descriptors that a server needs beside its open connections."""


class Settings(BaseSettings):
    """Read from the environment; a command line option of the same name overrides it."""

    model_config = SettingsConfigDict(env_prefix="CHAINRULE_", frozen=True, extra="forbid", hide_input_in_errors=True)

    host: str = Field(
        default="127.0.0.1", description="Address to listen on; an address other than loopback needs a token."
    )
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0 takes a free port.")
    token: SecretStr | None = Field(
        default=None,
        description="Password of the server: 8 to 256 letters, digits and . _ ~ - (created if needed and not set).",
    )
    tokens_file: str = Field(
        default="",
        description="File with a line `NAME TOKEN` for each person; "
        "a person whose line is removed is refused with the next request.",
    )
    insecure: bool = Field(default=False, description="Accept requests without a token.")
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="More host names of this server, separated by commas; * allows any."
    )
    trusted_proxies: Annotated[tuple[str, ...], NoDecode] = Field(
        default=("127.0.0.1",),
        description="Proxies whose X-Forwarded-Proto and X-Forwarded-For are trusted: addresses or networks; "
        "* trusts all.",
    )
    max_depth: int = Field(default=64, ge=1, le=10_000, description="Maximum number of layers of a spec.")
    max_width: int = Field(default=1024, ge=1, description="Maximum width of a layer.")
    max_batch: int = Field(default=1024, ge=1, description="Maximum batch size.")
    max_flops: int = Field(
        default=100_000_000_000,
        ge=1,
        description="Maximum floating point operations of one pass, estimated from the spec.",
    )
    max_memory_bytes: int = Field(
        default=1 << 30, ge=1, description="Maximum memory of one pass in bytes, estimated from the spec."
    )
    max_body_bytes: int = Field(
        default=65_536, ge=1024, description="Maximum size of a request body or WebSocket message in bytes."
    )
    max_response_bytes: int = Field(
        default=64 << 20, ge=1 << 17, description="Maximum size of an answer in bytes, estimated from the spec."
    )
    max_steps: int = Field(
        default=256,
        ge=1,
        description="Maximum number of Python steps of a program; each step is recorded as separate ops.",
    )
    sweep_workers: int = Field(
        default=1, ge=0, le=256, description="Number of worker processes that compute maps; 0 switches maps off."
    )
    max_sweep_cells: int = Field(default=50_000, ge=1, description="Maximum number of nets of a map.")
    max_sweep_flops: int = Field(
        default=20_000_000_000_000,
        ge=1,
        description="Maximum floating point operations of a map, estimated from its specs.",
    )
    deadline_seconds: float = Field(
        default=10, gt=0, le=3600, description="Maximum time of a request to wait and compute, in seconds."
    )
    live_deadline_seconds: float = Field(
        default=2, gt=0, le=3600, description="Maximum time to compute one picture of a live socket, in seconds."
    )
    live_grace_seconds: float = Field(
        default=0.25,
        ge=0,
        description="A newer request of a socket stops a computation only after this time, in seconds.",
    )
    max_requests: int = Field(default=256, ge=1, description="Maximum number of open requests; one more gets 503.")
    max_sockets: int = Field(default=128, ge=1, description="Maximum number of open live sockets; one more gets 503.")
    max_connections: int = Field(
        default=1000,
        ge=1,
        description="Maximum number of open connections; one more replaces an idle one, or gets 503.",
    )
    max_kept_bytes: int = Field(
        default=1 << 30, ge=0, description="Maximum memory in bytes that all live sockets keep between pictures."
    )
    receive_seconds: float = Field(
        default=10, gt=0, description="Maximum time for the head of a request to arrive, and for its body, in seconds."
    )
    send_seconds: float = Field(
        default=10,
        gt=0,
        description="A client that reads less than 1 KiB per second for this time is disconnected, in seconds.",
    )
    queue: int = Field(
        default=8, ge=0, description="Maximum number of requests that wait for a device; one more gets 503."
    )
    threads: int = Field(default=1, ge=1, description="Number of threads of torch.")
    shutdown_seconds: int = Field(
        default=5, ge=1, description="Maximum time for open requests to end at shutdown, in seconds."
    )
    lessons: str = Field(default="", description="Folder with lessons that replace Chainrule's own lessons.")
    log_format: LogFormat = Field(
        default="text", description="text for people, or json with one object per line for programs."
    )
    log_level: LogLevel = Field(
        default="warning", description="Minimum level of log messages: critical, error, warning, info or debug."
    )

    @field_validator("allowed_hosts", "trusted_proxies", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        """`a.example, b.example` from the environment is two names."""
        if isinstance(value, str):
            return tuple(name.strip().lower() for name in value.split(",") if name.strip())
        return value

    @field_validator("trusted_proxies", mode="after")
    @classmethod
    def _check_proxies(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        """Only addresses and networks are allowed: a name, or a network with host bits, would never match."""
        for each in value:
            try:
                ipaddress.ip_network(each if each != "*" else "0.0.0.0/0")
            except ValueError:
                raise ValueError("expected addresses and networks such as 10.0.0.0/8, or *") from None
        return value

    @field_validator("token", mode="after")
    @classmethod
    def _check_token(cls, value: SecretStr | None) -> SecretStr | None:
        """A token is part of a link; an empty variable means no token."""
        if value is None or not value.get_secret_value():
            return None
        if not TOKEN_PATTERN.fullmatch(value.get_secret_value()):
            raise ValueError("a token is 8 to 256 letters, digits and . _ ~ -")
        return value

    @field_validator("tokens_file", mode="after")
    @classmethod
    def _check_tokens_file(cls, value: str) -> str:
        if value:
            read_tokens(Path(value))
        return value

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)


def read_tokens(path: Path) -> dict[str, str]:
    """Token → name, from the lines `NAME TOKEN` of a file; lines that are empty or begin with # do not count.

    Raises:
        ValueError: the file cannot be read, or names the line that is wrong, without its token.
    """
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"the file cannot be read: {error}") from None
    tokens: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, token, *more = [*line.split(), "", ""][: max(2, len(line.split()))]
        if more or not NAME_PATTERN.fullmatch(name) or not TOKEN_PATTERN.fullmatch(token):
            raise ValueError(f"line {number} is not a name and a token of 8 to 256 letters, digits and . _ ~ -")
        if token in tokens or name in tokens.values():
            raise ValueError(f"line {number} has a name or a token of an earlier line")
        tokens[token] = name
    return tokens


def read_settings(**given: Any) -> Settings:
    """Settings from the environment, overridden by the arguments.

    Raises:
        ValueError: one line that names each wrong variable, its value (except the token) and what is allowed.
    """
    try:
        return Settings(**given)
    except ValidationError as error:
        raise ValueError("; ".join(map(_in_words, error.errors()))) from None


def _in_words(problem: ErrorDetails) -> str:
    name, says = str(problem["loc"][0]), problem["msg"].removeprefix("Value error, ")
    value = "" if name == "token" else f"{problem['input']!r}: "
    return f"CHAINRULE_{name.upper()}: {value}{says}"


OWN_HOST = f"chainrule-{secrets.token_hex(4)}.localhost"
"""A name of this machine that only this process uses.

RFC 6761 reserves the names in `.localhost` for the machine itself. Some browsers ask the network for them, so a server
accepts no other one of them, against DNS rebinding.
"""


def is_loopback(host: str) -> bool:
    """Whether a host name or address always means the machine itself."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
