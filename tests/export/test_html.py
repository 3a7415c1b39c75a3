"""The explorer as one file: it loads nothing, nothing in the data is markup, and the data are the trace's."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from bad_dumps import EVIL_NAMES, with_evil_names

from chainrule.dump.wire import dump_trace, load
from chainrule.errors import RenderError
from chainrule.export import html
from chainrule.export.html import shell, to_html
from chainrule.page.modules import bundle
from chainrule.run import trace_spec
from chainrule.spec import ModelSpec

STATIC = Path(__file__).parents[2] / "static"


class Document(HTMLParser):
    """The addresses, tags, styles and data of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.loaded, self.handlers, self.styles = [], [], [], ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append(tag)
        self.handlers += [name for name in attributes if name.startswith("on")]
        self.loaded += [attributes[name] for name in ("src", "href") if name in attributes and tag != "a"]
        self._id = attributes.get("id")

    def handle_data(self, data):
        if self.cdata_elem == "style":
            self.styles += data
        elif self.cdata_elem == "script" and self._id == "page-data":
            self.data = json.loads(data)


@pytest.fixture(scope="module")
def trace():
    return trace_spec(ModelSpec.from_query("widths=5,4,1&batch=3&activation=tanh"))


@pytest.fixture(scope="module")
def page(trace):
    return Document(to_html(trace, name="net.json", view="level=all"))


def test_the_file_loads_nothing(page):
    assert all(address.startswith("data:") for address in page.loaded)
    assert page.handlers == []
    assert not {"iframe", "img", "object"} & set(page.tags)
    assert re.search(r"</|<!--|@import|url\((?!data:|#)", page.styles) is None
    for name in re.findall('"(.+)"', (STATIC / "css" / "explorer-page.css").read_text()):
        assert (STATIC / "css" / name).read_text().rstrip("\n") in page.styles, name


def test_the_data_are_the_trace_s_and_not_the_server_s(page, trace, monkeypatch):
    data = page.data
    assert data["dump"]["name"] == "net.json"
    assert json.dumps(data["dump"]["content"]) == json.dumps(json.loads(dump_trace(trace)))
    assert data["spec"] == trace.spec
    assert data["query"] == "widths=5,4,1&activation=tanh&batch=3"
    assert data["view"] == "level=all"
    assert len(data["dump"]["theory"]["layers"]) == len(trace.layers)
    monkeypatch.setenv("CHAINRULE_TOKEN", "a-secret-token")
    html._shell.cache_clear()
    again = to_html(trace)
    assert "a-secret-token" not in again
    assert Document(again).data["needs_token"] is False
    html._shell.cache_clear()


def test_the_policy_admits_the_file_s_own_script_alone(trace):
    text = to_html(trace)
    (policy,) = re.findall('<meta http-equiv="content-security-policy" content="([^"]+)">', text)
    assert text.index(policy) < text.index("<script")
    (script,) = re.findall('<script type="module">(.*?)</script>', text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'sha256-{digest}';" in policy


def test_a_trace_of_a_later_version_s_spec_is_a_file_too(trace):
    body = json.loads(dump_trace(trace))
    body["spec"]["newer"] = 1
    page = Document(to_html(load(json.dumps(body))))
    assert page.data["dump"]["content"]["spec"] == body["spec"]
    assert page.data["spec"] == ModelSpec().as_dict()
    # Without the spec, theory follows from the measured inputs of the layers.
    first, last = page.data["dump"]["theory"]["layers"]
    assert {"preactivation_std", "activation_std"} <= first["expected"].keys()
    assert last["reason"] == "Lin: theory needs at least two units"


def test_evil_names_are_no_markup(trace):
    body = with_evil_names(json.loads(dump_trace(trace)))
    page = Document(to_html(load(json.dumps(body)), name=EVIL_NAMES[3], view=EVIL_NAMES[3]))
    assert page.handlers == []
    assert "img" not in page.tags
    assert page.tags.count("script") == 2
    assert page.data["dump"]["content"] == body
    assert page.data["dump"]["name"] == page.data["view"] == EVIL_NAMES[3]


def test_the_page_and_the_server_fill_the_shell_alike(engine, page):
    assert Document(shell()).data["dump"] == {"name": "", "content": None}
    data = page.data | {"view": "select=<l1>&$&$1"}
    fill = f"({bundle(STATIC / 'core' / 'takeaway' / 'standalone.js')}).standaloneHtml"
    filled = engine.eval(f"{fill}({json.dumps(shell())}, {json.dumps(data)})")
    # Through JavaScript, whose integers are smaller.
    assert Document(filled).data == json.loads(engine.eval(f"JSON.stringify({json.dumps(data)})"))
    assert re.sub(r'(id="page-data">)[^<]*', r"\1", filled) == re.sub(r'(id="page-data">)[^<]*', r"\1", shell())
    again = f"try {{ {fill}('<p>no place</p>', {{}}) }} catch (error) {{ error.message }}"
    assert engine.eval(again) == "the page's shell has no place for its data"


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("css/base.css", '@import "./x.css";', "^x.css: No such file or directory"),
        ("css/base.css", '@import "./tokens.css";\n@import "./base.css";', "each other: base.css → base.css$"),
    ],
)
def test_a_file_that_cannot_be_inlined_is_an_error(tmp_path, monkeypatch, name, text, says):
    for folder in ("core", "css", "elements"):
        (tmp_path / folder).mkdir()
    (tmp_path / "icon.svg").write_text("<svg/>")
    (tmp_path / "explorer.js").write_text('import "./core/types.js";\n')
    (tmp_path / "core" / "types.js").write_text("export {};\n")
    for path in (STATIC / "css").glob("*.css"):
        (tmp_path / "css" / path.name).write_text("")
    monkeypatch.setattr(html.assets, "static", lambda: tmp_path)
    html._shell.cache_clear()
    assert "</html>" in shell()
    (tmp_path / name).write_text(text)
    html._shell.cache_clear()
    with pytest.raises(RenderError, match=says):
        shell()
    html._shell.cache_clear()
