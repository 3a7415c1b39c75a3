"""The people who may talk to the server: those who know its token, and those with a token of their own in a file.

The file is read again when it changes. When the line of a person is removed, the person's link, sessions and open
sockets end with the next request or message.
"""

from __future__ import annotations

import hmac
import logging
import os
from contextlib import suppress
from functools import cache
from pathlib import Path

from chainrule.settings import Settings, read_tokens
from chainrule.web.sessions import is_session

logger = logging.getLogger(__name__)


class People:
    """The tokens that admit, with the names of their owners; "" owns the server's own.

    If the file cannot be read, or one of its lines is wrong, the people of the last correct file stay, and the log says
    it once.
    """

    def __init__(self, settings: Settings) -> None:
        self._own = {settings.token.get_secret_value(): ""} if settings.token else {}
        self._file = Path(settings.tokens_file) if settings.tokens_file else None
        self._tokens = dict(self._own)
        self._known = dict.fromkeys(self._own)
        self._seen: tuple[int, ...] | None = None
        _ = self.tokens  # of the file that the settings were checked with

    @property
    def needs_token(self) -> bool:
        """Whether a request without a token is refused."""
        return self._file is not None or bool(self._own)

    @property
    def tokens(self) -> dict[str, str]:
        """Token → name, from the file as it is now."""
        if self._file is not None:
            seen: tuple[int, ...] = ()
            with suppress(OSError):
                found = os.stat(self._file)
                seen = (found.st_ino, found.st_size, found.st_mtime_ns)
            if seen != self._seen:
                self._seen = seen
                try:
                    self._tokens = read_tokens(self._file) | self._own
                    self._known |= dict.fromkeys(self._tokens)
                except ValueError as error:
                    logger.error("the people of the last correct file stay: CHAINRULE_TOKENS_FILE: %s", error)
        return self._tokens

    @property
    def known(self) -> list[str]:
        """All tokens that have ever admitted, the longest first: what the log must not show."""
        _ = self.tokens
        return sorted(self._known, key=len, reverse=True)

    def token_of(self, given: str) -> str | None:
        """The token that was given, if it admits, after a comparison with all in constant time."""
        found = None
        for token in self.tokens:
            if hmac.compare_digest(given.encode("utf-8", "surrogateescape"), token.encode()):
                found = token
        return found

    def token_of_session(self, session: str) -> str | None:
        """The token that signed a session that has not ended, if it admits."""
        return next((token for token in self.tokens if is_session(session, token)), None)

    def name_of(self, token: str) -> str | None:
        """The name of its owner; None if it does not admit any more."""
        return self.tokens.get(token)


@cache
def people_of(settings: Settings) -> People:
    """The people of a server, the same object for its guard and its log."""
    return People(settings)
