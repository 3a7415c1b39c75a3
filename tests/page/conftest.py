"""Temporary packages with page files."""

import pytest

from chainrule.page import assets, bundles, static_addresses


def forget():
    for cached in (assets.static, static_addresses._contents_digest, bundles._bundles):
        cached.cache_clear()


@pytest.fixture
def use(monkeypatch):
    """Make a folder the package."""

    def use(package):
        monkeypatch.setattr(assets, "PACKAGE", package)
        monkeypatch.setattr(bundles, "FOLDER", package / "page" / "bundled")
        monkeypatch.setattr(static_addresses, "_seen", None)
        forget()

    yield use
    forget()


@pytest.fixture
def checkout(tmp_path, use):
    """Write the files of `static/` into a temporary checkout; returns its folder."""

    def write(sources):
        static = tmp_path / "checkout" / "static"
        for name, source in sources.items():
            path = static / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source)
        use(static.parent / "app" / "chainrule")
        return static

    return write
