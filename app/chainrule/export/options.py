"""Keys of a format's own, how their values are read, and what is said of one that is wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass

from chainrule.errors import RequestError


@dataclass(frozen=True, slots=True)
class Option:
    """A key of a format's own, beside the spec's: not what is traced but how it is written.

    `choices` are all that it takes, or `pattern` is, in words `allowed`.
    """

    name: str
    default: str
    doc: str
    choices: tuple[str, ...] = ()
    pattern: str = ""
    allowed: str = ""

    def read(self, text: str) -> str:
        """The text of a value, once it is known to be one.

        Raises:
            RequestError: it is not; names the key, the value and what is allowed.
        """
        if text in self.choices or (self.pattern and re.fullmatch(self.pattern, text)):
            return text
        raise RequestError(
            f"{self.name}: {text[:40]!r} is not {self.allowed or 'one of ' + ', '.join(self.choices)}",
            status=422,
            code="invalid_parameter",
            field=self.name,
            limit=list(self.choices) or None,
        )
