"""Bundles of the page's files: complete, never out of date, never half written."""

import re
import shutil
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from chainrule.chapter.pages import PAGES
from chainrule.errors import RenderError
from chainrule.page import bundles, modules
from chainrule.page.bundles import bundle_of, write_bundles
from chainrule.page.static_addresses import current_digest
from chainrule.web.static_files import OwnFiles

ROOT = Path(__file__).parents[2]

SOURCES = {
    "page.js": 'import { deep } from "./core/deep.js";\nglobalThis.page = deep;\n',
    "chapter/other.js": 'import { deep } from "../core/deep.js";\nglobalThis.other = deep;\n',
    "core/deep.js": 'export const deep = new URL("./deep-worker.js", import.meta.url);\n',
    "core/deep-worker.js": "globalThis.works = true;\n",
    "css/page.css": '/* Both. */\n@import "./base.css";\n@import "./parts/box.css";\n',
    "css/base.css": "p { margin: 0 }\n",
    "css/parts/box.css": '@import "../base.css";\n.box { margin: 1px }\n',
}


@pytest.fixture
def static(checkout):
    """The `static/` of a temporary checkout with two pages and a worker, bundled."""
    static = checkout(SOURCES)
    write_bundles(static, bundles.FOLDER)
    return static


def served(name, before=lambda: None):
    """The answer to a file's address with the current digest, asked for after `before`."""
    app = Starlette()
    app.mount("/static", OwnFiles())
    address = f"/static/~{current_digest()}/{name}"
    before()
    with TestClient(app) as client:
        answer = client.get(address)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/javascript" if name.endswith(".js") else "text/css")
    assert "immutable" in answer.headers["cache-control"]
    return answer.text


def test_a_module_that_no_other_imports_is_served_bundled(static):
    for name in ("page.js", "chapter/other.js"):
        script = served(name)
        assert script != (static / name).read_text()
        assert not modules.STATEMENT.search(script)
        assert "deep-worker.js" in script
    assert served("core/deep.js") == SOURCES["core/deep.js"]
    assert "globalThis.works = true;" in served("core/deep-worker.js")


@pytest.mark.usefixtures("static")
def test_a_worker_s_address_is_relative_to_its_module():
    assert 'new URL("./deep-worker.js", new URL("core/deep.js", import.meta.url).href)' in served("page.js")
    assert 'new URL("./deep-worker.js", new URL("../core/deep.js", import.meta.url).href)' in served("chapter/other.js")


@pytest.mark.parametrize("name", ["core/deep.js", "page.js"])
def test_edited_files_are_served_unbundled(static, name):
    (static / name).write_text(SOURCES[name] + "// edited\n")
    assert served("page.js") == (static / "page.js").read_text()
    assert served("chapter/other.js") == SOURCES["chapter/other.js"]
    write_bundles(static, bundles.FOLDER)
    assert served("page.js") != (static / "page.js").read_text()


def test_a_new_or_renamed_file_or_another_bundler_outdates_the_bundles(static, monkeypatch, tmp_path):
    assert bundle_of("page.js", "1") is not None
    (static / "new.js").write_text("")
    assert bundle_of("page.js", "2") is None
    (static / "new.js").unlink()
    assert bundle_of("page.js", "3") is not None
    other = tmp_path / "modules.py"
    other.write_text("")
    monkeypatch.setattr(modules, "__file__", str(other))
    assert bundle_of("page.js", "4") is None


def test_a_style_sheet_s_imports_are_inlined(static):
    base, box = "p { margin: 0 }\n", ".box { margin: 1px }\n"
    assert served("css/page.css") == f"/* Both. */\n{base}{base}{box}"
    assert served("css/base.css") == base
    (static / "css" / "base.css").write_text("")
    assert served("css/page.css") == SOURCES["css/page.css"]


def test_an_error_keeps_the_previous_bundles(static):
    before = {path: path.read_bytes() for path in bundles.FOLDER.rglob("*") if path.is_file()}
    (static / "page.js").write_text('import * as all from "./core/deep.js";\n')
    with pytest.raises(RenderError, match=r"^page\.js: 'import \* as all"):
        write_bundles(static, bundles.FOLDER)
    assert {path: path.read_bytes() for path in bundles.FOLDER.rglob("*") if path.is_file()} == before
    assert [path.name for path in bundles.FOLDER.parent.iterdir()] == ["bundled"]
    assert served("chapter/other.js") == SOURCES["chapter/other.js"]


@pytest.mark.parametrize("name", ["page.js", "css/page.css"])
@pytest.mark.usefixtures("static")
def test_a_client_that_takes_gzip_gets_a_bundle_compressed(name):
    app = Starlette()
    app.mount("/static", OwnFiles())
    address = f"/static/~{current_digest()}/{name}"
    with TestClient(app) as client:
        plain = client.get(address, headers={"accept-encoding": "identity"})
        packed = client.get(address, headers={"accept-encoding": "gzip, br"})
        assert "content-encoding" not in plain.headers
        assert packed.headers["content-encoding"] == "gzip"
        assert packed.headers["content-length"] == str((bundles.FOLDER / f"{name}.gz").stat().st_size)
        assert packed.content == plain.content == (bundles.FOLDER / name).read_bytes()
        assert packed.headers["etag"] != plain.headers["etag"]
        for answer in (plain, packed):
            assert answer.headers["vary"] == "accept-encoding"
            asked = {
                "if-none-match": answer.headers["etag"],
                "accept-encoding": answer.headers.get("content-encoding", ""),
            }
            assert client.get(address, headers=asked).status_code == 304


@pytest.mark.usefixtures("static")
def test_the_compressed_file_has_no_address_of_its_own():
    app = Starlette()
    app.mount("/static", OwnFiles())
    with TestClient(app) as client:
        assert client.get(f"/static/~{current_digest()}/page.js.gz").status_code == 404


def test_bundles_of_deleted_files_are_deleted(static):
    (static / "chapter" / "other.js").unlink()
    write_bundles(static, bundles.FOLDER)
    left = {"page.js", "core/deep-worker.js", "css/page.css", "css/parts/box.css"}
    made = {path.relative_to(bundles.FOLDER).as_posix() for path in bundles.FOLDER.rglob("*") if path.is_file()}
    assert made == left | {f"{name}.gz" for name in left} | {"DIGEST"}


def test_files_are_served_unbundled_if_the_bundles_are_deleted(static):
    assert served("page.js", before=lambda: shutil.rmtree(bundles.FOLDER)) == SOURCES["page.js"]
    assert served("page.js") == SOURCES["page.js"]
    write_bundles(static, bundles.FOLDER)
    assert served("page.js") != SOURCES["page.js"]


def test_an_installed_package_always_serves_its_bundles(static, tmp_path, use):
    made = bundles.FOLDER
    package = tmp_path / "site" / "chainrule"
    shutil.copytree(static, package / "static")
    use(package)
    without = current_digest()
    assert served("page.js") == SOURCES["page.js"]
    shutil.copytree(made, bundles.FOLDER)
    (bundles.FOLDER / bundles.STAMP).write_text("of another time")
    use(package)
    assert current_digest() != without
    assert served("page.js") == (made / "page.js").read_text()


def test_all_pages_and_workers_are_bundled(tmp_path):
    static = ROOT / "static"
    write_bundles(static, tmp_path / "bundled")
    made = {path.relative_to(tmp_path / "bundled").as_posix() for path in (tmp_path / "bundled").rglob("*.js")}
    begun = {f"foundations/{name.replace('_', '-')}.js" for name in PAGES}
    begun = {name for name in begun if (static / name).exists()}
    assert len(begun) > 10
    for path in static.rglob("*.js"):
        for worker in re.findall(r'new Worker\(new URL\("\./([^"]+)", import\.meta\.url\)', path.read_text()):
            begun.add((path.parent / worker).relative_to(static).as_posix())
    for template in (ROOT / "templates").rglob("*.html"):
        begun.update(re.findall(r'src="\{\{ static\("([^"~]+\.js)"\) \}\}"', template.read_text()))
    assert {"explorer.js", "core/layout/worker.js"} <= begun <= made
