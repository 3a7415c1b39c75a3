"""The paths of templates, static files and the packaged third-party scripts.

In a checkout `static/` and `templates/` are beside `app/`, in an installed wheel inside the package. Third-party files
are named one by one: no part of a request's path becomes a part of a path on disk.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent


@cache
def templates() -> Path:
    """Folder of the Jinja templates."""
    return _folder("templates")


@cache
def static() -> Path:
    """Folder of the page's own scripts and styles."""
    return _folder("static")


@cache
def documents() -> Path:
    """Folder of the documents that the page reads."""
    return _folder("docs")


def are_installed() -> bool:
    """Whether the files belong to an installed package, which nobody edits."""
    return static().parent == PACKAGE


@cache
def vendor() -> Mapping[str, Path]:
    """Third-party files by their address below `/static/vendor/`.

    Raises:
        FileNotFoundError: a package is not installed, or has the file elsewhere.
    """
    swagger = sorted(_package("swagger_ui_bundle").glob("vendor/swagger-ui-*"))
    if not swagger:
        raise FileNotFoundError("the package swagger_ui_bundle has no folder vendor/swagger-ui-*")
    files = {
        "plotly.min.js": _package("plotly") / "package_data" / "plotly.min.js",
        "swagger-ui/swagger-ui.css": swagger[-1] / "swagger-ui.css",
        "swagger-ui/swagger-ui-bundle.js": swagger[-1] / "swagger-ui-bundle.js",
    }
    for path in files.values():
        if not path.is_file():
            raise FileNotFoundError(f"{path} is missing")
    return files


def digest(*roots: Path, contents: bool = False) -> str:
    """The digest of files and of all files in folders: of their names, sizes and modification times or `contents`."""
    found = blake2b(digest_size=8)
    for root in map(str, roots):  # texts: every page of a checkout waits for this, and paths take four times as long
        names = [os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names]
        for path in sorted(names) or [root] * os.path.isfile(root):
            state = os.stat(path)
            found.update(f"{path[len(root) :].replace(os.sep, '/')}\0{state.st_size}\0".encode())
            found.update(Path(path).read_bytes() if contents else f"{state.st_mtime_ns}\0".encode())
    return found.hexdigest()


def _folder(name: str) -> Path:
    for root in (PACKAGE, PACKAGE.parent.parent):
        if (root / name).is_dir():
            return root / name
    raise FileNotFoundError(f"no folder {name} in {PACKAGE} nor in {PACKAGE.parent.parent}")


def _package(name: str) -> Path:
    """Folder of an installed package, without importing it: to import plotly takes longer than a whole trace."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"the package {name} is not installed")
    return Path(spec.origin).parent
