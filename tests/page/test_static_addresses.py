"""The digest in the addresses of static files names one state of the files."""

import os
import shutil

import pytest

from chainrule.page import assets, static_addresses
from chainrule.page.static_addresses import VERSIONED, current_digest, is_current

pytestmark = pytest.mark.smoke


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A temporary checkout with three files."""
    checkout = tmp_path / "checkout"
    package = checkout / "app" / "chainrule"
    package.mkdir(parents=True)
    for name in ("explorer.js", "core/dom.js", "css/base.css"):
        path = checkout / "static" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"/* {name} */")
    return use(package, monkeypatch) / "static"


def use(package, monkeypatch):
    """Make a folder the package; returns the folder with `static`."""
    monkeypatch.setattr(assets, "PACKAGE", package)
    monkeypatch.setattr(static_addresses, "_seen", None)
    for cached in (assets.static, static_addresses._contents_digest):
        cached.cache_clear()
    return package if (package / "static").is_dir() else package.parent.parent


@pytest.fixture(autouse=True)
def _forgotten():
    yield
    assets.static.cache_clear()
    static_addresses._contents_digest.cache_clear()


def test_a_digest_names_the_state_of_every_file(folder):
    first = current_digest()
    assert VERSIONED.fullmatch(f"~{first}")
    assert current_digest() == first
    seen = {first}

    def is_new():
        digest = current_digest()
        is_other = digest not in seen
        seen.add(digest)
        return is_other

    dom = folder / "core" / "dom.js"
    dom.write_text(dom.read_text() + "// longer")
    assert is_new()
    # The same length, at another time.
    os.utime(dom, ns=(1, 1))
    assert is_new()
    (folder / "core" / "new.js").write_text("")
    assert is_new()
    (folder / "core" / "new.js").rename(folder / "new.js")
    assert is_new()
    shutil.rmtree(folder / "css")
    assert is_new()


def test_an_edited_file_outdates_a_digest(folder, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(static_addresses.time, "monotonic", lambda: clock[0])
    digest = current_digest()
    assert is_current(digest)
    assert not is_current("0" * 16)
    (folder / "explorer.js").write_text("changed")
    clock[0] += 0.5
    # A page that is loading uses the cached digest.
    assert is_current(digest)
    clock[0] += 1
    assert not is_current(digest)
    # A page that is opened computes it.
    (folder / "explorer.js").write_text("changed again")
    assert is_current(current_digest())


def test_the_digest_of_an_installed_package_is_of_its_contents(folder, tmp_path, monkeypatch):
    digests = []
    for time in (1, 10**18):
        package = tmp_path / f"site-{time}" / "chainrule"
        shutil.copytree(folder, package / "static")
        for path in package.rglob("*.*"):
            os.utime(path, ns=(time, time))
        use(package, monkeypatch)
        assert assets.are_installed()
        digests.append(current_digest())
    assert digests[0] == digests[1]
    (package / "static" / "explorer.js").write_text("/* Explorer.js */")
    use(package, monkeypatch)
    assert current_digest() != digests[0]
    assert is_current(current_digest())


def test_this_checkout_is_not_an_installed_package():
    assert not assets.are_installed()
