"""The documents: settings, the map, links, and examples that run. And the versions of dependencies."""

import argparse
import re
import shlex
import tomllib
from pathlib import Path

import httpx
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from chainrule.settings import Settings

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))}
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def table(document):
    """Rows of a document's first table, cells stripped of their code marks."""
    rows = re.search(r"((?:^\|.*\|\n)+)", document, re.MULTILINE)[1].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in row.strip("|").split("|")] for row in rows]


def blocks(language):
    documents = "\n".join([README, DOCS[ROOT / "docs" / "api.md"]])
    return dict.fromkeys(re.findall(rf"^```{language}\n(.*?)^```", documents, re.MULTILINE | re.DOTALL))


def curl_commands():
    lines = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("curl")]
    return list(dict.fromkeys(lines))


def test_every_setting_is_listed_with_its_default():
    def text(value):
        if value is None or value == ():
            return "–"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value).lower() if isinstance(value, bool) else str(value)

    expected = {f"CHAINRULE_{name.upper()}": text(field.default) for name, field in Settings.model_fields.items()}
    assert {row[0]: row[1] for row in table(DOCS[ROOT / "docs" / "settings.md"])} == expected


@pytest.mark.parametrize("command", curl_commands())
def test_examples_of_the_api_run(command, server_url):
    parser = argparse.ArgumentParser()
    parser.add_argument("-s", action="store_true")
    parser.add_argument("-X", default="GET")
    parser.add_argument("-H", action="append", default=[])
    parser.add_argument("-d")
    parser.add_argument("url")
    asked = parser.parse_args(shlex.split(command)[1:])
    assert asked.url.startswith("http://127.0.0.1:8000/")
    url = asked.url.replace("http://127.0.0.1:8000", server_url)
    headers = dict(each.split(": ") for each in asked.H)
    answer = httpx.request(asked.X, url, headers=headers, content=asked.d, timeout=60)
    assert answer.status_code == 200, answer.text
    if ".dot" in url:
        assert answer.text.startswith("digraph")
    elif ".svg" in url:
        assert answer.text.startswith("<svg")
    elif ".html" in url:
        assert answer.text.startswith("<!doctype html>")
    else:
        assert answer.json()


@pytest.mark.parametrize("code", blocks("python"))
def test_python_examples_run(code, capsys):
    exec(compile(code, "README.md", "exec"), {})
    assert "preactivation" in capsys.readouterr().out


def test_the_map_names_every_folder_and_module_of_the_package():
    package = ROOT / "app" / "chainrule"
    mapped = set(re.findall(r"`(?:app/chainrule/)?([\w.]+?)/?`", CONTRIBUTING.split("## Commands")[0]))
    modules = {path.name for path in package.glob("*.py")} - {"__init__.py", "errors.py"}
    assert modules | {path.parent.name for path in package.glob("*/__init__.py")} <= mapped


def test_relative_links_lead_somewhere():
    for document in (README, CONTRIBUTING, CHANGELOG):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", document):
            assert (ROOT / target).exists(), target


def test_the_guide_has_every_document_and_loads_nothing_from_elsewhere(guide):
    assert {path.stem for path in guide.glob("*.html")} == {path.stem for path in DOCS}
    loaded = re.compile(
        r"<(?:script|link|img|iframe|source|object|embed|video|audio)\b[^>]*?\b(?:src|href|data)=\"([^\"]*)"
    )
    for page in guide.glob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert "<script" not in text
        for address in loaded.findall(text):
            assert address == "data:," or (guide / address).is_file(), (page.name, address)
    for style in guide.rglob("*.css"):
        assert not re.search(r"url\(|@import", style.read_text(encoding="utf-8"))


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 150


def constraints():
    """Name → version."""
    pins = dict(
        re.fullmatch(r"([\w.-]+)==([\w.+-]+)", line).groups()
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    )
    return {canonicalize_name(name): version for name, version in pins.items()}


def locked(name):
    """Package → requirement, of a file in `requirements/`; each has the hashes of its files."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text().replace("\\\n", "")
    entries = [line.partition(" --hash=") for line in text.splitlines()]
    for requirement, _, hashes in entries:
        assert re.fullmatch(r"sha256:[0-9a-f]{64}( +--hash=sha256:[0-9a-f]{64})*", hashes), requirement
    requirements = [Requirement(requirement) for requirement, *_ in entries]
    return {canonicalize_name(each.name): each for each in requirements}


# Their files differ from index to index.
FROM_ITS_INDEX = {"torch", "torchvision"}


@pytest.mark.parametrize(
    ("files", "extras"), [(["server"], ["render", "digits", "dask"]), (["server", "build", "developers"], ["dev"])]
)
def test_hashes_are_known_of_every_file_that_is_installed(files, extras):
    pins = constraints()
    found = {package: each for name in files for package, each in locked(name).items()}
    for package, each in found.items():
        # Packages for other systems alone have their version here alone.
        assert each.marker if package not in pins else str(each.specifier) == f"=={pins[package]}", each
    project = PYPROJECT["project"]
    wanted = [*project["dependencies"], *(each for name in extras for each in project["optional-dependencies"][name])]
    names = {canonicalize_name(Requirement(each).name) for each in wanted}
    assert names - set(found) <= FROM_ITS_INDEX
    assert not FROM_ITS_INDEX & set(found)
    assert {Requirement(each).name for each in PYPROJECT["build-system"]["requires"]} <= set(locked("build"))


def test_constraints_pin_every_dependency_within_what_is_admitted():
    pins = constraints()
    project = PYPROJECT["project"]
    wanted = [*PYPROJECT["build-system"]["requires"], *project["dependencies"]]
    wanted += [each for extra in project["optional-dependencies"].values() for each in extra]
    for requirement in map(Requirement, wanted):
        assert pins[canonicalize_name(requirement.name)] in requirement.specifier, requirement
