"""The wheel: everything the page needs is inside, and it serves from any folder."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import pytest

import chainrule

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT],
        check=True,
        capture_output=True,
        text=True,
    )
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A folder that holds nothing but what the wheel brings."""
    folder = tmp_path_factory.mktemp("site-packages")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", folder, wheel],
        check=True,
        capture_output=True,
    )
    return folder


def run_installed(installed, folder, *command, **options):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CHAINRULE_")}
    environment |= {"PYTHONPATH": str(installed), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, *command], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, **options
    )


def files_below(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_the_wheel_holds_the_package_its_page_and_its_types(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"chainrule/static/{name}" for name in files_below(ROOT / "static")} <= names
    assert {f"chainrule/templates/{name}" for name in files_below(ROOT / "templates")} <= names
    sources = {name for name in files_below(ROOT / "app" / "chainrule") if name.endswith((".py", "py.typed"))}
    assert {f"chainrule/{name}" for name in sources} <= names
    assert "chainrule/py.typed" in names


def test_the_wheel_puts_one_name_into_the_environment(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"chainrule", f"chainrule-{chainrule.__version__}.dist-info"}
    assert not [name for name in names if name.endswith(".pyc") or "/tests/" in name]


def test_the_wheel_says_who_it_is(wheel):
    archive = zipfile.ZipFile(wheel)
    folder = f"chainrule-{chainrule.__version__}.dist-info"
    metadata = archive.read(f"{folder}/METADATA").decode()
    assert "\nRequires-Python: >=3.11\n" in metadata
    assert "\nLicense-Expression: MIT\n" in metadata
    assert "chainrule = chainrule.__main__:main" in archive.read(f"{folder}/entry_points.txt").decode()


def test_the_installed_command_line_answers_from_another_folder(installed, tmp_path):
    code = "import chainrule, sys; print(chainrule.__file__); from chainrule.__main__ import main; main()"
    with run_installed(installed, tmp_path, "-c", code, "--help") as process:
        where, text = process.stdout.readline(), process.stdout.read()
    assert process.returncode == 0
    assert Path(where.strip()).is_relative_to(installed)
    assert {"serve", "trace", "presets"} <= set(text.split())


def test_the_installed_server_serves_its_page_from_another_folder(installed, tmp_path):
    with run_installed(installed, tmp_path, "-m", "chainrule", "serve", "--port", "0") as process:
        try:
            lines = iter(process.stdout.readline, "")
            url = next(match[0] for line in lines if (match := re.search(r"http://\S+", line)))
            with httpx.Client(base_url=url) as client:
                page = client.get("/")
                assert page.status_code == 200
                addresses = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text))
                assert any(address.endswith(".js") for address in addresses)
                assert any(address.endswith(".css") for address in addresses)
                for address in sorted(addresses | {"/docs", "/static/vendor/plotly.min.js"}):
                    assert client.get(address).status_code == 200, address
        finally:
            process.terminate()
    assert not list(tmp_path.iterdir()), "the server writes nothing where it is started"
