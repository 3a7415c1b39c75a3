"""Bundles of modules: one script that runs them in a browser's order, or an error."""

import re
from pathlib import Path

import pytest

from chainrule.errors import RenderError
from chainrule.export.engine_process import make_engine
from chainrule.page.modules import COMMENT, STATEMENT, bundle, sorted_modules

STATIC = Path(__file__).parents[2] / "static"


@pytest.fixture(scope="module")
def engine():
    engine = make_engine()
    yield engine
    engine.close()


@pytest.fixture
def write(tmp_path):
    def make(**sources):
        for name, source in sources.items():
            (tmp_path / f"{name}.js").write_text(source)
        return tmp_path / "entry.js"

    return make


def run(engine, entry):
    """The entry's export `result`."""
    return engine.eval(f"delete globalThis.order; JSON.stringify(({bundle(entry)}).result)")


def parses(engine, script):
    """Raise an error if a text does not parse; nothing is run."""
    engine.eval(f"(function () {{ return {script}; }}); 0")


def test_every_module_of_the_page_is_bundled(engine):
    modules = {path: sorted_modules(path) for path in STATIC.rglob("*.js")}
    imported = {each for needed in modules.values() for each in needed[:-1]}
    for entry in modules.keys() - imported:
        script = bundle(entry)
        parses(engine, script)
        assert not re.search(r"^(import|export)\b", script, re.MULTILINE)


def test_no_line_of_a_template_looks_like_a_comment_or_a_statement():
    """The bundler reads lines, not JavaScript's grammar."""
    for path in STATIC.rglob("*.js"):
        inside = False
        for line in path.read_text().splitlines():
            looks_so = STATEMENT.match(line) or COMMENT.match(line)
            assert not (inside and looks_so), f"{path}: {line}"
            inside ^= not looks_so and line.count("`") % 2 == 1
        assert not inside, path


def test_every_known_form_of_import_and_export(engine, write):
    entry = write(
        deep="/** First. */\nexport const one = 1;\nexport function two() { return 2; }\n",
        side='globalThis.order = [...(globalThis.order ?? []), "side"];\n',
        middle=(
            'import { one } from "./deep.js";\nexport { two } from "./deep.js";\n'
            "const three = one + 2;\nclass Hidden { static four = 4; }\nexport { three, Hidden as Shown };\n"
            "export {};\n"
        ),
        entry=(
            'import "./side.js";\nimport {\n  one as first,\n  two,\n} from "./deep.js";\n'
            'import { Shown, three, two as again } from "./middle.js";\n'
            "export class Last extends Shown {}\n"
            "export async function later() { return 5; }\nexport function* many() { yield 6; }\n"
            "export const address = import.meta.url;\n"
            "/* import { a } from './nowhere.js'; */\n// export default 1\n"
            'const text = "import \'./x.js\'", slash = "*/*"; // not a whole line\n'
            "const read =\n  /** @type {any} */ (text) => text;\n"
            "const object = { import: 1, export: 2 };\n"
            "const { order } = globalThis;\n"
            "export const result = [\n"
            "  first, two(), three, again === two, Last.four, address, order, read(text), slash, object.export,\n];\n"
        ),
    )
    assert run(engine, entry) == '[1,2,3,true,4,"",["side"],"import \'./x.js\'","*/*",2]'


def test_a_module_runs_once_and_after_its_imports(engine, write):
    note = "globalThis.order = [...(globalThis.order ?? []), '{}'];\n"
    entry = write(
        a=note.format("a"),
        b='import "./a.js";\n' + note.format("b"),
        c='import "./b.js";\nimport "./a.js";\n' + note.format("c"),
        entry='import "./c.js";\nimport "./b.js";\n' + note.format("e") + "export const result = globalThis.order;\n",
    )
    assert run(engine, entry) == '["a","b","c","e"]'
    assert [path.stem for path in sorted_modules(entry)] == ["a", "b", "c", "entry"]


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("export default 1;\n", "export default 1"),
        ('import x from "./entry.js";\n', "import x from"),
        ('import * as x from "./entry.js";\n', "import \\* as x"),
        ('export * from "./deep.js";\n', "export \\*"),
        ("export let x = 1;\n", "export let x"),
        ("export const { a } = {};\n", "export const { a }"),
        ('const x = await import("./deep.js");\n', "import\\("),
        ('import { a } from "elsewhere";\n', "'elsewhere', which is not a module beside it"),
        ('import { a } from "./nowhere.js";\n', "nowhere.js: No such file"),
        ('import "./circle.js";\n', "entry.js → circle.js → entry.js"),
    ],
)
def test_an_unknown_form_is_an_error(write, source, says):
    entry = write(entry=source, deep="", circle='import "./entry.js";\n')
    with pytest.raises(RenderError, match=says):
        bundle(entry)
