"""Every setting of the server and the command line, one table: environment variables `CHAINRULE_*`."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

LogLevel = Literal["critical", "error", "warning", "info", "debug"]
LogFormat = Literal["text", "json"]

TOKEN_PATTERN = re.compile(r"[A-Za-z0-9._~-]{8,256}")
"""A token consists of characters that need no escaping in links and cookies."""

SPARE_DESCRIPTORS = 200
"""File descriptors that a server needs beside its open connections."""


class Settings(BaseSettings):
    """Read from the environment; a command line option of the same name goes before it."""

    model_config = SettingsConfigDict(env_prefix="CHAINRULE_", frozen=True, extra="forbid", hide_input_in_errors=True)

    host: str = Field(default="127.0.0.1", description="Address to listen on; anything but loopback needs a token.")
    port: int = Field(default=8000, ge=0, le=65535, description="Port to listen on; 0 takes any free one.")
    token: SecretStr | None = Field(
        default=None,
        description="Who may talk to the server: 8 to 256 letters, digits and . _ ~ - (made up if needed and not set).",
    )
    insecure: bool = Field(default=False, description="Listen beyond loopback without a token.")
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = Field(
        default=(), description="Further host names the server answers to, separated by commas; * is any."
    )
    trusted_proxies: Annotated[tuple[str, ...], NoDecode] = Field(
        default=("127.0.0.1",),
        description="Addresses or networks whose X-Forwarded-Proto and X-Forwarded-For are believed; * is any.",
    )
    max_depth: int = Field(default=64, ge=1, le=10_000, description="Most layers of a spec.")
    max_width: int = Field(default=1024, ge=1, description="Widest layer of a spec.")
    max_batch: int = Field(default=1024, ge=1, description="Largest batch of a spec.")
    max_flops: int = Field(
        default=100_000_000_000,
        ge=1,
        description="Most floating point operations of one pass, as estimated from the spec.",
    )
    max_memory_bytes: int = Field(
        default=1 << 30, ge=1, description="Most memory of one pass in bytes, as estimated from the spec."
    )
    max_body_bytes: int = Field(
        default=65_536, ge=1024, description="Largest request body or WebSocket message in bytes."
    )
    max_response_bytes: int = Field(
        default=64 << 20, ge=1 << 17, description="Largest answer in bytes, as estimated from the spec."
    )
    max_steps: int = Field(
        default=256, ge=1, description="Most steps of Python that a program may take, each recorded as ops of its own."
    )
    deadline_seconds: float = Field(
        default=10, gt=0, le=3600, description="Longest that a request may wait and compute, in seconds."
    )
    live_deadline_seconds: float = Field(
        default=2, gt=0, le=3600, description="Longest that one picture of a live socket may compute, in seconds."
    )
    live_grace_seconds: float = Field(
        default=0.25,
        ge=0,
        description="Computing younger than this is not given up for a newer request of its socket, in seconds.",
    )
    max_requests: int = Field(
        default=256, ge=1, description="Requests that are open at once; one more is answered 503."
    )
    max_sockets: int = Field(
        default=128, ge=1, description="Live sockets that are open at once; one more is answered 503."
    )
    max_connections: int = Field(
        default=1000,
        ge=1,
        description="Connections that are open at once; one more takes the place of an idle one, or is answered 503.",
    )
    max_kept_bytes: int = Field(
        default=1 << 30, ge=0, description="Most memory in bytes that live sockets keep between pictures, all together."
    )
    receive_seconds: float = Field(
        default=10, gt=0, description="How long the head of a request, and its body, may take to arrive, in seconds."
    )
    send_seconds: float = Field(
        default=10,
        gt=0,
        description="How long a client may take less than 1 KiB a second of what it is sent, in seconds.",
    )
    queue: int = Field(default=8, ge=0, description="Requests that wait for a device; one more is answered 503.")
    threads: int = Field(default=1, ge=1, description="Threads torch computes with.")
    shutdown_seconds: int = Field(
        default=5, ge=1, description="How long open requests may take to end at shutdown, in seconds."
    )
    lessons: str = Field(default="", description="Folder with lessons to show in place of Chainrule's own.")
    log_format: LogFormat = Field(
        default="text", description="text for people or json, one object a line, for machines."
    )
    log_level: LogLevel = Field(
        default="warning", description="Least severe log message: critical, error, warning, info or debug."
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
        """A token stands in a link and in a cookie; an empty variable means none."""
        if value is None or not value.get_secret_value():
            return None
        if not TOKEN_PATTERN.fullmatch(value.get_secret_value()):
            raise ValueError("a token is 8 to 256 letters, digits and . _ ~ -")
        return value

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)


def read_settings(**given: Any) -> Settings:
    """Settings from the environment, overridden by what is given.

    Raises:
        ValueError: in one line, which variables are wrong and why; their values are not repeated.
    """
    try:
        return Settings(**given)
    except ValidationError as error:
        problems = (f"CHAINRULE_{str(each['loc'][0]).upper()}: {each['msg']}" for each in error.errors())
        raise ValueError("; ".join(problems)) from None


def is_loopback(host: str) -> bool:
    """Whether a host name or address always means the machine itself."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
