"""The page's own scripts and styles: `/static/~DIGEST/NAME` to be kept for good, `/static/NAME` to be asked about."""

from __future__ import annotations

import os

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from chainrule.page import assets
from chainrule.page.static_addresses import VERSIONED, is_current
from chainrule.web.answers import REVALIDATE

IMMUTABLE = "public, max-age=31536000, immutable"
"""Cache-Control of what never changes beneath its address, for a year. The files are no secret: they are published."""


class OwnFiles(StaticFiles):
    """The files of `static/`.

    Beneath another digest than the present one the same files are served, to be asked about: after an upgrade a page
    that is still open finds what it loads late, and while two versions answer side by side no browser keeps the
    one's script under the other's address.
    """

    def __init__(self) -> None:
        super().__init__(directory=assets.static())

    async def get_response(self, path: str, scope: Scope) -> Response:
        """A file, or 304; raises HTTPException where there is none."""
        # The path has the separators of this system, and no `..` in it.
        match = VERSIONED.match(path.replace(os.sep, "/"))
        answer = await super().get_response(path[match.end() :] if match else path, scope)
        answer.headers["cache-control"] = IMMUTABLE if match and is_current(match[1]) else REVALIDATE
        return answer
