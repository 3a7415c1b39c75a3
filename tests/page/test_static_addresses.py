"""The digest in the addresses of static files names one state of the files."""

import os
import shutil

import pytest

from chainrule.page import assets, static_addresses
from chainrule.page.static_addresses import VERSIONED, current_digest, is_current

pytestmark = pytest.mark.smoke


@pytest.fixture
def static(checkout):
    return checkout({name: f"/* {name} */" for name in ("explorer.js", "core/dom.js", "css/base.css")})


def test_a_digest_names_the_state_of_every_file(static):
    dom = static / "core" / "dom.js"
    edits = [
        lambda: dom.write_text(dom.read_text() + "// longer"),
        lambda: os.utime(dom, ns=(1, 1)),  # the same length, at another time
        lambda: (static / "core" / "new.js").write_text(""),
        lambda: (static / "core" / "new.js").rename(static / "new.js"),
        lambda: shutil.rmtree(static / "css"),
    ]
    seen = {current_digest()}
    assert all(VERSIONED.fullmatch(f"~{each}") for each in seen)
    assert current_digest() in seen
    for edit in edits:
        edit()
        assert current_digest() not in seen
        seen.add(current_digest())


def test_an_edited_file_outdates_a_digest(static, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(static_addresses.time, "monotonic", lambda: clock[0])
    digest = current_digest()
    assert is_current(digest)
    assert not is_current("0" * 16)
    (static / "explorer.js").write_text("changed")
    clock[0] += 0.5
    # A page that is loading uses the cached digest.
    assert is_current(digest)
    clock[0] += 1
    assert not is_current(digest)
    # A page that is opened computes it.
    (static / "explorer.js").write_text("changed again")
    assert is_current(current_digest())


def test_the_digest_of_an_installed_package_is_of_its_contents(static, tmp_path, use):
    assert not assets.are_installed()
    digests = []
    for time in (1, 10**18):
        package = tmp_path / f"site-{time}" / "chainrule"
        shutil.copytree(static, package / "static")
        for path in package.rglob("*.*"):
            os.utime(path, ns=(time, time))
        use(package)
        assert assets.are_installed()
        digests.append(current_digest())
    assert digests[0] == digests[1]
    (package / "static" / "explorer.js").write_text("/* Explorer.js */")
    use(package)
    assert current_digest() != digests[0]
    assert is_current(current_digest())
