"""Who may import whom: one table per language, held against the imports that the sources contain."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "app" / "chainrule"
STATIC = ROOT / "static"

# Each unit, a folder or a module at the top of the package, and the units that it imports: all of them, and no others.
# A unit imports only units above it, so there is no cycle. `__init__`, which only names what is public, is no unit.
PYTHON = {
    "errors": "",
    "foundations": "",
    "notebook": "",
    "saving": "",
    "settings": "",
    "stats": "",
    "theory": "",
    "history": "errors saving",
    "memory": "errors",
    "stopping": "errors",
    "spec": "errors settings",
    "lessons": "errors spec",
    "trace": "errors stats memory stopping",
    "build": "errors foundations stopping spec trace",
    "diagnose": "foundations stats theory stopping spec trace build errors",
    "dump": "errors stats theory memory trace diagnose",
    "run": "errors stats spec trace build diagnose dump",
    "user_model": "errors stats memory stopping spec trace build diagnose run",
    "precision": "errors trace user_model",
    "page": "errors settings spec diagnose user_model",
    "gradcheck": "errors foundations stopping trace dump user_model",
    "chapter": "errors foundations stopping spec dump gradcheck",
    "export": "errors saving settings stats memory stopping spec trace diagnose dump run page",
    "recording": "errors saving trace diagnose dump run export",
    "watching": "errors notebook history stats trace dump run recording",
    "training": "errors foundations history stats spec trace build dump run watching",
    "sweeps": "errors memory stopping history spec theory build user_model",
    "web": """errors settings stats theory memory stopping spec trace build diagnose dump run user_model page gradcheck
        chapter export recording lessons notebook training history sweeps""",
    "__main__": """errors saving settings foundations history spec trace dump training sweeps user_model precision
        gradcheck export web""",
}

# The folders of `static/`, likewise. `core` is the modules directly in core/.
JAVASCRIPT = {
    "core": "",
    "core/rules": "",
    "docs": "",
    "core/chapter": "core",
    "core/dump": "core",
    "core/graph": "core core/rules",
    "core/layout": "core core/graph",
    "core/lab": "core core/rules core/dump core/graph",
    "core/map": "core core/lab",
    "core/inspector": "core core/rules core/graph core/lab",
    "core/view": "core core/graph core/layout core/lab",
    "core/takeaway": "core core/graph core/layout core/view",
    "foundations": "core core/chapter",
    "elements": "core core/rules core/dump core/graph core/lab core/map core/inspector core/view",
    "runs": "core core/lab elements",
    "map": "core core/lab core/map elements",
    "explorer": "core core/dump core/graph core/lab core/takeaway elements",
}

# Where another distribution may appear at all.
APPEARS_ONLY_IN = {
    "fastapi": {"web"},
    "starlette": {"web"},
    "pydantic": {"spec", "settings", "dump", "web"},
    "pydantic_settings": {"settings"},
}

JAVASCRIPT_IMPORT = re.compile(
    r"""(?:\bfrom|\bimport)\s*\(?\s*["']([^"']+)["'] | new\s+URL\(\s*["']([^"']+)["']\s*,\s*import\.meta\.url""",
    re.VERBOSE,
)
JAVASCRIPT_COMMENT = re.compile(r"/\*.*?\*/|^\s*//[^\n]*", re.DOTALL | re.MULTILINE)


def imported_names(source):
    """Absolute names of everything that a Python source imports, inside functions and under TYPE_CHECKING too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "relative imports are not used here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def python_edges():
    """unit → units, and distribution → units."""
    edges, distributions = defaultdict(set), defaultdict(set)
    for path in PACKAGE.rglob("*.py"):
        unit = path.relative_to(PACKAGE).with_suffix("").parts[0]
        edges[unit] |= set()
        for name in imported_names(path.read_text(encoding="utf-8")):
            first, _, rest = name.partition(".")
            if first != "chainrule":
                distributions[first].add(unit)
            elif (PACKAGE / rest.partition(".")[0]).is_dir() or (PACKAGE / f"{rest.partition('.')[0]}.py").is_file():
                edges[unit].add(rest.partition(".")[0])
    del edges["__init__"]
    return {unit: others - {unit, ""} for unit, others in edges.items()}, distributions


def javascript_unit(path):
    """`core/graph/search.js` belongs to `core/graph`, `explorer.js` to `explorer`."""
    folder = path.relative_to(STATIC).parent.as_posix()
    return folder.removeprefix("./") if folder != "." else path.stem


def javascript_edges():
    edges = defaultdict(set)
    for path in STATIC.rglob("*.js"):
        unit = javascript_unit(path)
        edges[unit] |= set()
        for match in JAVASCRIPT_IMPORT.finditer(JAVASCRIPT_COMMENT.sub("", path.read_text(encoding="utf-8"))):
            address = match[1] or match[2]
            assert address.startswith("."), f"{path.relative_to(STATIC)} imports {address}"
            edges[unit].add(javascript_unit((path.parent / address).resolve()))
    return {unit: others - {unit} for unit, others in edges.items()}


def as_table(edges):
    return {unit: set(others.split()) for unit, others in edges.items()}


@pytest.mark.smoke
@pytest.mark.parametrize(
    ("table", "edges"),
    [(PYTHON, lambda: python_edges()[0]), (JAVASCRIPT, javascript_edges)],
    ids=["python", "javascript"],
)
def test_units_import_what_the_table_says(table, edges):
    assert edges() == as_table(table)


@pytest.mark.parametrize("table", [PYTHON, JAVASCRIPT], ids=["python", "javascript"])
def test_a_unit_imports_only_units_above_it(table):
    above = set()
    for unit, others in as_table(table).items():
        assert others <= above, f"{unit} imports {others - above}"
        above.add(unit)


def test_other_distributions_appear_only_where_they_may():
    _, distributions = python_edges()
    assert [name for name, units in APPEARS_ONLY_IN.items() if not distributions[name] <= units] == []
