"""Bundles: a module or a style sheet with everything that it imports, as one file, which halves the page's load time.

    python -m chainrule.page.bundles [FOLDER]

writes them, each also compressed as NAME.gz; so do an installation and `make`. A module that no other imports starts a
page or a worker, and becomes a bundle of the same name; so does a style sheet that imports others. If a checkout was
edited since, the files are served unbundled.

Imports only the standard library and modules of this package that do so too: it runs while the package is built.
"""

from __future__ import annotations

import gzip
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

from chainrule.errors import RenderError
from chainrule.page import assets, modules, style_sheets

FOLDER = Path(__file__).parent / "bundled"
"""Their folder; each has the name of its first file."""

STAMP = "DIGEST"
"""The file with the digest of their sources' names, sizes and modification times."""


def write_bundles(static: Path, folder: Path) -> None:
    """Bundle every module that no other imports and every style sheet that imports others; replaces `folder`.

    Raises:
        RenderError: a module has an unknown form, imports itself, or imports a missing file.
    """
    static = static.resolve()
    stamp = _sources_digest(static)
    order: dict[Path, None] = {}
    imported: set[Path] = set()
    for path in sorted(static.rglob("*.js")):
        needed = modules.sorted_modules(path)
        order.update(dict.fromkeys(needed))
        imported.update(needed[:-1])
    made_of = {path: f"{modules.bundle(path, served=True)};\n" for path in order if path not in imported}
    made_of |= {path: style_sheets.inline(path) for path in static.rglob("*.css") if style_sheets.has_imports(path)}
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as made:
        for path, text in made_of.items():
            target = Path(made, "new", path.relative_to(static))
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            target.with_name(f"{target.name}.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        Path(made, "new", STAMP).write_text(stamp)
        if folder.exists():
            folder.rename(Path(made, "old"))
        Path(made, "new").rename(folder)


def _sources_digest(static: Path) -> str:
    """The digest of the sources, and of the code that bundles them."""
    makers = __file__, str(modules.__file__), str(style_sheets.__file__)
    return assets.digest(static, *map(Path, makers))


def bundle_of(name: str, state: str) -> Path | None:
    """The bundle of a file of `static/`, or None; `state` is the current digest of the page's files."""
    return _bundles(state).get(name)


@lru_cache(maxsize=2)
def _bundles(_: str) -> dict[str, Path]:
    try:
        is_current = assets.are_installed() or (FOLDER / STAMP).read_text() == _sources_digest(assets.static())
    except OSError:
        is_current = False
    if not is_current:
        return {}
    return {path.relative_to(FOLDER).as_posix(): path for path in FOLDER.rglob("*.*") if path.suffix != ".gz"}


if __name__ == "__main__":
    try:
        write_bundles(assets.static(), Path(sys.argv[1]) if sys.argv[1:] else FOLDER)
    except RenderError as error:
        sys.exit(error.message)
    except OSError as error:  # the folder is read-only, or another process writes it
        sys.exit(str(error))
