"""Who may import whom: the layers of the package, read from the source itself."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "app" / "chainrule"
STATIC = ROOT / "static"

# What a unit (a module or a folder of the package) may import of ours, besides itself.
MAY_IMPORT = {
    "foundations": set(),
    "stats": set(),
    "theory": set(),
    "errors": set(),
    "stopping": {"errors"},
    "trace": {"stats", "errors", "stopping"},
}

# Who may import a unit, besides itself.
IMPORTED_ONLY_BY = {
    "foundations": {"build", "chapter"},
    "web": {"main"},
}

# Where another distribution may appear at all.
APPEARS_ONLY_IN = {
    "fastapi": {"web", "main"},
    "starlette": {"web", "main"},
    "pydantic": {"spec", "settings", "wire", "web"},
    "pydantic_settings": {"settings"},
}

JAVASCRIPT_IMPORT = re.compile(
    r"""(?:\bfrom|\bimport)\s*\(?\s*["']([^"']+)["'] | new\s+URL\(\s*["']([^"']+)["']\s*,\s*import\.meta\.url""",
    re.VERBOSE,
)


def imported_modules(source, package):
    """Absolute names of everything that a Python source imports, from inside functions and TYPE_CHECKING too."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, *filter(None, [node.module])])
            # `from chainrule import spec` names a module, `from chainrule.spec import ModelSpec` does not: either way
            # the first two parts say which unit.
            names |= {f"{base}.{alias.name}" for alias in node.names}
    return names


def unit_of(module):
    """`chainrule.trace.graph` belongs to the unit `trace`; the package itself is the unit ``."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def read_python():
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(("chainrule", *path.relative_to(PACKAGE).with_suffix("").parts))
        package = module.rpartition(".")[0]
        yield module.removesuffix(".__init__"), imported_modules(path.read_text(encoding="utf-8"), package)


IMPORTS = dict(read_python())


def violations(imports):
    found = []
    for module, names in imports.items():
        unit = unit_of(module)
        for name in sorted(names):
            first, other = name.split(".")[0], unit_of(name)
            if first in APPEARS_ONLY_IN and unit not in APPEARS_ONLY_IN[first]:
                found.append(f"{module} imports {first}")
            if first != "chainrule" or other == unit:
                continue
            if (unit in MAY_IMPORT and other not in MAY_IMPORT[unit]) or (
                other in IMPORTED_ONLY_BY and unit not in IMPORTED_ONLY_BY[other]
            ):
                found.append(f"{module} imports {name}")
    return found


def javascript_violations(folder, elements, core):
    """Elements import core alone, core nothing but core; both by relative path, nothing from elsewhere."""
    found = []
    for path in (*elements, *core):
        source = path.read_text(encoding="utf-8")
        for match in JAVASCRIPT_IMPORT.finditer(source):
            address = match[1] or match[2]
            if not (address.startswith(".") and (path.parent / address).resolve().is_relative_to(folder / "core")):
                found.append(f"{path.relative_to(folder)} imports {address}")
    return found


@pytest.mark.smoke
def test_python_modules_import_only_what_they_may():
    assert violations(IMPORTS) == []


def test_the_units_the_rules_name_exist():
    units = {unit_of(module) for module in IMPORTS}
    assert set(MAY_IMPORT) | {"build", "web", "main", "spec", "settings", "wire"} <= units


@pytest.mark.parametrize(
    ("module", "source", "violation"),
    [
        ("chainrule.theory.mean_field", "def f():\n    from chainrule import spec", "imports chainrule.spec"),
        ("chainrule.stats.kernel", "from ..trace.graph import Op", "imports chainrule.trace.graph.Op"),
        ("chainrule.trace.recorder", "import chainrule.build", "imports chainrule.build"),
        ("chainrule.run", "from chainrule.foundations.layers import relu", "imports chainrule.foundations.layers.relu"),
        ("chainrule.profile", "import chainrule.web.api", "imports chainrule.web.api"),
        ("chainrule.build", "from pydantic import BaseModel", "imports pydantic"),
        ("chainrule.spec", "import fastapi.responses", "imports fastapi"),
    ],
)
def test_a_violation_is_seen(module, source, violation):
    assert violations({module: imported_modules(source, module.rpartition(".")[0])}) == [f"{module} {violation}"]


def test_elements_import_core_alone_and_core_imports_no_element():
    elements, core = sorted(STATIC.glob("elements/**/*.js")), sorted(STATIC.glob("core/**/*.js"))
    assert elements
    assert core
    assert javascript_violations(STATIC, elements, core) == []


def test_a_violation_in_javascript_is_seen(tmp_path):
    files = {
        "elements/graph.js": 'import { signal } from "../core/signal.js";\nimport "./inspector.js";\n',
        "elements/lazy.js": 'const loaded = await import("./graph.js");\n',
        "core/layout.js": 'export { layer } from "./layered.js";\n',
        "core/worker.js": 'new Worker(new URL("../elements/graph.js", import.meta.url));\n',
        "core/remote.js": 'import x from "https://example.org/x.js";\n',
    }
    for name, source in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(source)
    paths = {name: tmp_path / name for name in files}
    elements, core = ([path for name, path in paths.items() if name.startswith(kind)] for kind in ("elements", "core"))
    assert javascript_violations(tmp_path, elements, core) == [
        "elements/graph.js imports ./inspector.js",
        "elements/lazy.js imports ./graph.js",
        "core/worker.js imports ../elements/graph.js",
        "core/remote.js imports https://example.org/x.js",
    ]
