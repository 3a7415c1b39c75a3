"""The documents say what is there: settings, keys, routes, commands, versions, and examples that run."""

import re
import shlex
import tomllib
from pathlib import Path

import httpx
import pytest
import torch
from fastapi.routing import APIRoute, APIWebSocketRoute
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from torch import nn

import chainrule
from chainrule.settings import Settings
from chainrule.spec import ModelSpec
from chainrule.spec.keys import SPEC_KEYS
from chainrule.spec.values import number_text
from chainrule.user_model.model import OwnModel
from chainrule.user_model.subject import make_subject
from chainrule.web.main import create_app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def table(heading):
    """Rows of the first table after a heading, cells stripped of their code marks."""
    section = README.split(f"\n### {heading}\n")[1]
    rows = re.search(r"((?:^\|.*\|\n)+)", section, re.MULTILINE)[1].splitlines()[2:]
    return [[cell.strip().strip("`") for cell in row.strip("|").split("|")] for row in rows]


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def curl_commands():
    return [line for block in blocks("sh") for line in block.splitlines() if line.startswith("curl")]


def test_every_setting_is_listed_with_its_default():
    def text(value):
        if value is None or value == ():
            return "–"
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value).lower() if isinstance(value, bool) else str(value)

    expected = {f"CHAINRULE_{name.upper()}": text(field.default) for name, field in Settings.model_fields.items()}
    assert {row[0]: row[1] for row in table("Settings")} == expected


def test_no_document_names_a_setting_that_is_not_there():
    known = {f"CHAINRULE_{name.upper()}" for name in Settings.model_fields} | {"CHAINRULE_CHROMIUM"}
    assert set(re.findall(r"CHAINRULE_[A-Z_]+", README + CONTRIBUTING + CHANGELOG)) <= known


def test_every_key_of_the_spec_is_listed_with_its_default_and_choices():
    def text(key):
        if isinstance(key.default, bool):
            return str(key.default).lower()
        return key.default if isinstance(key.default, str) else number_text(key.default)

    rows = {row[0]: row for row in table("The spec")}
    assert {name: row[1] for name, row in rows.items()} == {key.name: text(key) for key in SPEC_KEYS}
    for key in SPEC_KEYS:
        words = set(re.findall(r"[\w@]+", rows[key.name][2]))
        assert set(key.choices) <= words, key.name


def routes_of(app):
    """(method, path) of all that an app answers, but for files."""

    def flat(routes):
        for route in routes:
            if isinstance(route, APIWebSocketRoute):
                yield "WS", route.path
            elif isinstance(route, APIRoute):
                yield from ((method, route.path) for method in route.methods - {"HEAD"})
            elif hasattr(route, "original_router"):
                yield from flat(route.original_router.routes)

    return {(method, path) for method, path in flat(app.routes) if not path.startswith("/static/")}


def test_every_route_is_listed():
    listed = set(re.findall(r"`(GET|POST|WS) (/[^`]*)`", README))
    routes = routes_of(create_app(Settings()))
    assert {("GET", "/api/v1/trace.json"), ("WS", "/api/v1/live"), ("POST", "/api/v1/trace")} <= routes
    assert routes <= listed


def test_so_is_every_route_of_a_model_of_ones_own():
    own = OwnModel("net", lambda: make_subject((nn.Linear(3, 1), torch.ones(2, 3), torch.sum), "net"))
    base = "/api/v1/model/"
    routes = {(method, path) for method, path in routes_of(create_app(Settings(), own=own)) if path.startswith(base)}
    rows = "".join(line for line in README.splitlines() if f" {base}" in line)
    listed = set(re.findall(rf"`(GET|POST|WS) ({base}[^`]*)`", rows))
    # Of one that ends in a format only the suffix is repeated.
    listed |= {("GET", f"{base}trace{suffix}") for suffix in re.findall(r"`(\.[a-z.-]+)`", rows)}
    assert listed == routes


@pytest.mark.parametrize("command", curl_commands())
def test_examples_of_the_api_run(command, server_url):
    method, headers, body, url = "GET", {}, None, ""
    words = iter(shlex.split(command)[1:])
    for word in words:
        match word:
            case "-s":
                pass
            case "-X":
                method = next(words)
            case "-H":
                headers.update([next(words).split(": ")])
            case "-d":
                body = next(words)
            case _:
                url = word
    assert url.startswith("http://127.0.0.1:8000/")
    answer = httpx.request(method, url.replace("http://127.0.0.1:8000", server_url), headers=headers, content=body)
    assert answer.status_code == 200, answer.text
    if ".dot" in url:
        assert answer.text.startswith("digraph")
    elif ".svg" in url:
        assert answer.text.startswith("<svg")
    elif ".html" in url:
        assert answer.text.startswith("<!doctype html>")
    else:
        assert answer.json()


def test_specs_on_the_command_line_are_specs():
    queries = re.findall(r"chainrule trace '([^']+)'", README)
    assert queries
    for query in queries:
        ModelSpec.from_query(query)


@pytest.mark.parametrize("code", blocks("python"))
def test_python_examples_run(code, capsys):
    exec(compile(code, "README.md", "exec"), {})
    assert "preactivation" in capsys.readouterr().out


def test_every_make_target_is_explained_and_every_explained_one_exists():
    targets = set(re.findall(r"^([a-z-]+):.*## ", MAKEFILE, re.MULTILINE))
    assert set(re.findall(r"^\| `make ([a-z-]+)` \|", CONTRIBUTING, re.MULTILINE)) == targets - {"help"}
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split()
    assert set(phony) == targets


def test_the_map_names_every_folder_and_module_of_the_package():
    package = ROOT / "app" / "chainrule"
    mapped = set(re.findall(r"`(?:app/chainrule/)?([\w.]+?)/?`", CONTRIBUTING.split("## Commands")[0]))
    modules = {path.name for path in package.glob("*.py")} - {"__init__.py", "errors.py"}
    assert modules | {path.parent.name for path in package.glob("*/__init__.py")} <= mapped


def test_relative_links_lead_somewhere():
    for document in (README, CONTRIBUTING, CHANGELOG):
        for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", document):
            assert (ROOT / target).exists(), target


def test_the_changelog_has_this_version():
    assert re.search(rf"^## \[{re.escape(chainrule.__version__)}\] - ", CHANGELOG, re.MULTILINE)


def test_constraints_pin_every_dependency_within_what_is_admitted():
    pins = dict(
        re.fullmatch(r"([\w.-]+)==([\w.+-]+)", line).groups()
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if line and not line.startswith("#")
    )
    pins = {canonicalize_name(name): version for name, version in pins.items()}
    project = PYPROJECT["project"]
    wanted = [*PYPROJECT["build-system"]["requires"], *project["dependencies"]]
    wanted += [each for extra in project["optional-dependencies"].values() for each in extra]
    for requirement in map(Requirement, wanted):
        assert pins[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_torch_is_admitted_only_in_the_tested_version():
    (torch,) = [each for each in PYPROJECT["project"]["dependencies"] if each.startswith("torch")]
    pinned = re.search(r"^torch(==\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]
    assert torch == f"torch{pinned}"
    assert f"tested with: {pinned.removeprefix('==').rpartition('.')[0]}" in README


def test_the_readmes_figures_are_filled_in():
    figures = README.split("<!-- figures: make bench -->")[1].split("<!-- /figures -->")[0]
    assert "…" not in figures
    assert all(
        re.search(rf"\| {name}: .*\| [0-9.]+ ms \| [0-9.]+× \|", figures) for name in ("M1", "M2", "M3", "M4", "M5")
    )
