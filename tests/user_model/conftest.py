"""Files of users."""

from pathlib import Path
from textwrap import dedent

import pytest

from chainrule.user_model.model import open_reference

USER_MODELS = Path(__file__).parents[1] / "shared" / "user_models"


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
    """One of the models under `tests/shared/user_models/`: `own("convnet.py:make")`."""

    def own(reference, **options):
        return open_reference(str(USER_MODELS / reference), **options)

    return own
