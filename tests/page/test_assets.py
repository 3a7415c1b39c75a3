"""The paths of the page's files."""

import sys

import pytest

from chainrule.page import assets

pytestmark = pytest.mark.smoke


def test_the_wheel_s_folders_come_first(tmp_path, monkeypatch):
    package = tmp_path / "site" / "app" / "chainrule"
    (package / "static").mkdir(parents=True)
    (tmp_path / "site" / "templates").mkdir()
    monkeypatch.setattr(assets, "PACKAGE", package)
    assert assets._folder("static") == package / "static"
    assert assets._folder("templates") == tmp_path / "site" / "templates"
    with pytest.raises(FileNotFoundError, match="no folder elsewhere"):
        assets._folder("elsewhere")


def test_third_party_files_are_found():
    before = "plotly" in sys.modules
    files = assets.vendor()
    assert ("plotly" in sys.modules) == before, "to import it takes longer than a trace"
    assert set(files) == {"plotly.min.js", "swagger-ui/swagger-ui.css", "swagger-ui/swagger-ui-bundle.js"}
    assert b"plotly.js v" in files["plotly.min.js"].read_bytes()[:200]
    assert b"SwaggerUIBundle" in files["swagger-ui/swagger-ui-bundle.js"].read_bytes()
    with pytest.raises(FileNotFoundError, match="not installed"):
        assets._package("no_such_package")
