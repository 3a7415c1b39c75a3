"""Bundles of modules: one script that runs them in a browser's order, or an error."""

import re
from pathlib import Path

import pytest
from py_mini_racer import JSParseException, MiniRacer

from chainrule.errors import RenderError
from chainrule.page.modules import bundle, mask, sorted_modules

STATIC = Path(__file__).parents[2] / "static"


@pytest.fixture(scope="module")
def engine():
    engine = MiniRacer()
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
    return engine.eval(f"JSON.stringify(({bundle(entry)}).result)")


def parses(engine, script):
    """Raise an error if a text does not parse; nothing is run."""
    engine.eval(f"(function () {{ return {script}; }}); 0")


def test_every_module_of_the_page_is_bundled(engine):
    modules = {path: sorted_modules(path) for path in STATIC.rglob("*.js")}
    imported = {each for needed in modules.values() for each in needed[:-1]}
    for entry in modules.keys() - imported:
        script = bundle(entry)
        parses(engine, script)
        assert not re.search(r"^(import|export)\b", mask(script)[1], re.MULTILINE)
    for path in modules:
        code, masked = mask(path.read_text())
        assert len(code) == len(masked)


def test_every_known_form_of_import_and_export(engine, write):
    entry = write(
        deep="export const one = 1;\nexport function two() { return 2; }\n",
        side='globalThis.order = [...(globalThis.order ?? []), "side"];\n',
        middle=(
            'import { one } from "./deep.js";\n'
            'export { two } from "./deep.js";\n'
            "const three = one + 2;\nclass Hidden { static four = 4; }\nexport { three, Hidden as Shown };\n"
            "export {};\n"
        ),
        entry=(
            'import "./side.js";\n'
            'import {\n  one as first,\n  two,\n} from "./deep.js";\n'
            'import { Shown, three, two as again } from "./middle.js";\n'
            "export class Last extends Shown {}\n"
            "export async function later() { return 5; }\nexport function* many() { yield 6; }\n"
            "export const address = import.meta.url;\n"
            "const read = (/** @type {import('./types.js').Any} */ text) => text;\n"
            "const { order } = globalThis;\n"
            'export const result = [first, two(), three, again === two, Last.four, address, order, read("x")];\n'
        ),
    )
    assert run(engine, entry) == '[1,2,3,true,4,"",["side"],"x"]'
    engine.eval("delete globalThis.order; 0")


def test_a_module_runs_once_and_after_its_imports(engine, write):
    note = "globalThis.order = [...(globalThis.order ?? []), '{}'];\n"
    entry = write(
        a=note.format("a"),
        b='import "./a.js";\n' + note.format("b"),
        c='import "./b.js";\nimport "./a.js";\n' + note.format("c"),
        entry='import "./c.js";\nimport "./b.js";\n'
        + note.format("entry")
        + "export const result = globalThis.order;\n",
    )
    assert run(engine, entry) == '["a","b","c","entry"]'
    assert [path.stem for path in sorted_modules(entry)] == ["a", "b", "c", "entry"]
    engine.eval("delete globalThis.order; 0")


def test_import_and_export_in_strings_and_comments_are_ignored(engine, write):
    source = r"""
/* import { a } from "./nowhere.js"; */
// export default 1
const text = "import './x.js'", other = '// not a comment', accept = "*/*";
const template = `
export const a = ${[1, 2].map((n) => `${n}${"}"}`).join()} // import
`;
const expression = /["'`/*]export[/"]/.test('"') || 6 / 2 / 3;
const path = text.replace(/\/\*/g, "").length / 2;
const object = { import: 1, export: 2 };
export const result = [template.trim(), accept, other, expression, object.import + object.export, path];
"""
    entry = write(entry=source)
    assert run(engine, entry) == '["export const a = 1},2} // import","*/*","// not a comment",1,3,7.5]'


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("export default 1;\n", "export default 1"),
        ('import x from "./entry.js";\n', "import x from"),
        ('import * as x from "./entry.js";\n', "import \\* as x"),
        ('export * from "./deep.js";\n', "export \\*"),
        ("export let x = 1;\n", "export let x"),
        ("export const { a } = {};\n", "export const { a }"),
        ("export const a = f(1, 2), b = 2;\n", "export const a"),
        ('const x = await import("./deep.js");\n', "import\\("),
        ('import { a } from "elsewhere";\n', "'elsewhere', which is not a module beside it"),
        ('import { a } from "./nowhere.js";\n', "nowhere.js: No such file"),
        ('import "./entry.js";\n', "entry.js → entry.js"),
        ('import "./circle.js";\n', "entry.js → circle.js → entry.js"),
        ("const x = `never ended;\n", "entry.js: a template does not end"),
    ],
)
def test_an_unknown_form_is_an_error(write, source, says):
    entry = write(entry=source, deep="", circle='import "./entry.js";\n')
    with pytest.raises(RenderError, match=says):
        bundle(entry)


def test_a_top_level_await_does_not_parse(engine, write):
    with pytest.raises(JSParseException):
        parses(engine, bundle(write(entry="await 1;\n")))
