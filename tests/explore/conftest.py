"""Files as users write them, and what running them leaves in this process."""

import sys
from pathlib import Path
from textwrap import dedent

import pytest

from chainrule.explore.own_model import open_reference

OWN_MODELS = Path(__file__).parents[1] / "shared" / "own_models"


@pytest.fixture(autouse=True)
def _clean_imports(tmp_path_factory):
    """A test's files are imported from their folder; the next test has others of the same names."""
    path, modules, arguments = list(sys.path), dict(sys.modules), sys.argv
    folders = str(OWN_MODELS), str(tmp_path_factory.getbasetemp())
    yield
    sys.path[:] = path
    sys.argv = arguments
    for name, module in list(sys.modules.items()):
        # Of a folder without __init__.py the module has no file.
        places = [getattr(module, "__file__", None), *vars(module).get("__path__", ())]
        if name not in modules and any(str(place).startswith(folders) for place in places):
            del sys.modules[name]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder that the command runs in, and that comes first on the import path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.fixture
def write(folder):
    """Write a file into the folder; the same name again is an edit."""

    def write(name, text):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text))
        return path

    return write


@pytest.fixture
def own():
    """One of the models under `tests/shared/own_models/`: `own("convnet.py:make")`."""

    def own(reference, **options):
        return open_reference(str(OWN_MODELS / reference), **options)

    return own
