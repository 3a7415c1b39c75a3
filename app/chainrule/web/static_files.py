"""The page's own scripts and styles: `/static/~DIGEST/NAME` to be kept for good, `/static/NAME` to be asked about.

Under the digest a script that begins a page or a worker, or a style sheet, comes with all that it imports in it
(`page/bundles.py`).
"""

from __future__ import annotations

import os
from mimetypes import guess_type
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from chainrule.errors import NotFoundError
from chainrule.page import assets
from chainrule.page.bundles import bundle_of
from chainrule.page.static_addresses import VERSIONED, is_current
from chainrule.web.answers import REVALIDATE

IMMUTABLE = "public, max-age=31536000, immutable"
"""Cache-Control of what never changes beneath its address, for a year. The files are no secret: they are published."""


GUIDE = Path(assets.__file__).parent / "guide"
"""The documents, as `make docs` or an installation built them."""


class OwnFiles(StaticFiles):
    """The files of `static/`.

    Beneath another digest than the present one the same files are served, to be asked about: after an upgrade a page
    that is still open finds what it loads late, and while two versions answer side by side no browser keeps the
    one's script under the other's address.
    """

    def __init__(self) -> None:
        super().__init__(directory=assets.static())

    async def get_response(self, path: str, scope: Scope) -> Response:
        """A file or 304; raises HTTPException if it does not exist."""
        # The path has the separators of this system, and no `..` in it.
        match = VERSIONED.match(path.replace(os.sep, "/"))
        name = path[match.end() :] if match else path
        is_kept = match is not None and is_current(match[1])
        bundle = bundle_of(Path(name).as_posix(), match[1]) if match is not None and is_kept else None
        if bundle is not None and scope["method"] in ("GET", "HEAD"):
            is_packed = "gzip" in Headers(scope=scope).get("accept-encoding", "")
            file = bundle.with_name(f"{bundle.name}.gz") if is_packed else bundle
            answer = self.file_response(file, file.stat(), scope)
            answer.headers["vary"] = "accept-encoding"
            if is_packed and answer.status_code != 304:
                answer.headers["content-encoding"] = "gzip"
                answer.headers["content-type"] = f"{guess_type(bundle)[0]}; charset=utf-8"
        else:
            answer = await super().get_response(name, scope)
        answer.headers["cache-control"] = IMMUTABLE if is_kept else REVALIDATE
        return answer


class GuideFiles(StaticFiles):
    """The files of the built guide."""

    def __init__(self) -> None:
        super().__init__(directory=GUIDE, html=True, check_dir=False)

    async def check_config(self) -> None:
        """Raises NotFoundError if the guide is not built; called until it is."""
        if not GUIDE.is_dir():
            raise NotFoundError("The guide is not built. Run this command in the project's folder: make docs")

    async def get_response(self, path: str, scope: Scope) -> Response:
        """A file or 304; raises HTTPException if it does not exist."""
        answer = await super().get_response(path, scope)
        answer.headers["cache-control"] = REVALIDATE
        return answer
