"""The explorer as one HTML file that opens without a server: modules and style sheets inlined, the dump in the page."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import lru_cache
from typing import Any

import orjson

from chainrule import __version__
from chainrule.diagnose.profile import spec_of, theory
from chainrule.dump.wire import dump_trace, theory_dump
from chainrule.page import assets
from chainrule.page.data import page_data
from chainrule.page.modules import bundle
from chainrule.page.style_sheets import inline
from chainrule.page.templating import render
from chainrule.run import available_devices
from chainrule.settings import Settings
from chainrule.spec import ModelSpec
from chainrule.trace.graph import Trace

DATA = re.compile(r'(<script type="application/json" id="page-data">)[^<]*(</script>)')
SCRIPT = re.compile(r'<script type="module" src="/static/(?:~[^/"]*/)?([^"]+)"></script>')
STYLE = re.compile(r'<link rel="stylesheet" href="/static/(?:~[^/"]*/)?([^"]+)">')
ICON = re.compile(r'<link rel="icon" href="/static/(?:~[^/"]*/)?([^"]+)" type="([^"]+)">')
PRELOAD = re.compile(r'\s*<link rel="modulepreload" [^>]*>')
INLINED = re.compile(r'<script type="module">(.*?)</script>', re.DOTALL)

POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
    "form-action 'none'"
)
"""The content security policy of the file: no script but its own runs, and nothing is loaded or sent."""


def to_html(trace: Trace, *, name: str = "trace.json", view: str = "") -> str:
    """The explorer with a trace in it; `name` is the dump's in the page, `view` a fragment of the page's address.

    Raises:
        RenderError: the page has something in it that cannot be inlined.
    """
    # A server sends theory with a profile; the file has to contain it.
    told = theory_dump(theory(trace)) if trace.spec is not None or trace.layers else None
    dump = {"name": name, "content": orjson.Fragment(dump_trace(trace)), "theory": told}
    data = {**_data(spec_of(trace) or ModelSpec(), dump), "view": view}
    return fill(shell(), orjson.dumps(data))


def shell() -> str:
    """The page with everything inlined but the dump, which `fill` adds. Raises RenderError, as `to_html`."""
    return _shell(assets.digest(assets.static()), assets.digest(assets.templates()))


def fill(page: str, data: bytes) -> str:
    """A shell with its data replaced; nothing in the data can end the script element."""
    text = data.decode().replace("<", "\\u003c")
    return DATA.sub(lambda match: match[1] + text + match[2], page, count=1)


@lru_cache(maxsize=1)
def _shell(*_: str) -> str:
    data = _data(ModelSpec(), {"name": "", "content": None})
    page = render("explorer.html", version=__version__, page_data=data, error=None, standalone=True)
    page = PRELOAD.sub("", page)
    page = STYLE.sub(lambda match: f"<style>\n{inline(assets.static() / match[1])}</style>", page)
    page = SCRIPT.sub(lambda match: f'<script type="module">\n{bundle(assets.static() / match[1])};\n</script>', page)
    page = ICON.sub(lambda match: f'<link rel="icon" href="{_data_address(match[1], match[2])}">', page)
    policy = POLICY.format(scripts=" ".join(f"'sha256-{_hash(script)}'" for script in INLINED.findall(page)))
    return page.replace("<head>", f'<head>\n    <meta http-equiv="content-security-policy" content="{policy}">', 1)


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _data(spec: ModelSpec, dump: dict[str, Any]) -> dict[str, Any]:
    # The defaults, not the environment's settings: the file is independent of its server.
    return page_data(spec, settings=Settings.model_construct(), devices=available_devices(), dump=dump)


def _data_address(name: str, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode((assets.static() / name).read_bytes()).decode()}"
