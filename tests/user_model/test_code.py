"""Run a user's files, run them again after an edit, and report errors with their place."""

import os
import sys
from types import SimpleNamespace

import pytest
import torch

from chainrule.errors import ExploreError
from chainrule.user_model.code import (
    UserFile,
    as_program,
    load,
    place_of,
    raised_at,
    run_file,
    split_reference,
)

BROKEN = {
    "syntax": ("x = 1\ndef f(:\n    pass\n", "model.py:2: the import failed: SyntaxError: invalid syntax"),
    "name": ("x = 1\n\ny = z\n", "model.py:3: the import failed: NameError: name 'z' is not defined"),
    "ends the process": ("raise SystemExit(3)\n", "model.py:1: the import failed: SystemExit: 3"),
    "several lines": ("raise ValueError('one\\ntwo')\n", "model.py:1: the import failed: ValueError: one two"),
    "says nothing": (
        "class Mute(BaseException):\n    def __str__(self):\n        raise ValueError\nraise Mute\n",
        "model.py:4: the import failed: Mute",
    ),
    "not text": ("x = '\\udc80'.encode()\n", "model.py:1: the import failed: UnicodeEncodeError: 'utf-8' codec can't"),
}


@pytest.mark.parametrize(("source", "message"), BROKEN.values(), ids=BROKEN)
def test_a_file_that_does_not_import_is_refused_with_its_line(write, source, message):
    path = write("model.py", source)
    with pytest.raises(ExploreError) as caught:
        run_file(path)
    assert caught.value.message.startswith(message)
    assert "\n" not in caught.value.message
    assert "chainrule_run_model" not in sys.modules


def test_an_error_in_an_imported_file_has_its_place_there(write):
    write("parts.py", "x = 1\ny = x / 0\n")
    path = write("model.py", "import parts\n")
    with pytest.raises(ExploreError, match=r"^parts\.py:2: the import failed: ZeroDivisionError: division by zero$"):
        run_file(path)
    with pytest.raises(ExploreError, match=r"^model\.txt: not a Python file$"):
        run_file(write("model.txt", "x = 1\n"))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("model.py", "model.py: expected FILE.py:NAME"),
        ("model.py:", "model.py:: expected FILE.py:NAME"),
        (":make", ":make: expected FILE.py:NAME"),
        ("model.py:make()", "model.py:make(): expected FILE.py:NAME"),
        ("model.py:make", "model.py: file not found"),
        (".:make", ". is a folder; expected FILE.py:NAME"),
    ],
)
def test_a_bad_reference_is_refused(reference, message):
    with pytest.raises(ExploreError) as caught:
        split_reference(reference)
    assert caught.value.message == message


def test_an_unknown_name_is_refused_with_the_known_ones(write):
    write("model.py", "def make(): ...\nclass Net:\n    small = 1\n_private = 1\n")
    with pytest.raises(ExploreError) as caught:
        load("model.py:mkae")
    assert caught.value.message == "model.py: unknown name mkae; the file defines make, Net"
    assert load("model.py:Net.small") == 1


def test_a_file_is_run_as_an_imported_module(write):
    path = write(
        "model.py",
        """
        from dataclasses import dataclass

        def annotated(x: str) -> str:
            return x

        @dataclass
        class Sizes:
            width: int = 3

        is_program = __name__ == "__main__"
        """,
    )
    module = run_file(path)
    assert module.is_program is False
    # With this package's own `from __future__ import annotations` they would be text.
    assert module.annotated.__annotations__ == {"x": str, "return": str}
    assert module.Sizes().width == 3
    assert module.__file__ == str(path)


# ---------------------------------------------------------------------------------------------------------- run again
def test_an_edit_of_equal_time_and_size_is_seen(write):
    path = write("model.py", "from parts import scale\nwidth = 1\n")
    parts = write("parts.py", "scale = 1\n")
    stamp = parts.stat()
    file = UserFile(path)
    first = file.run()
    write("model.py", "from parts import scale\nwidth = 2\n")
    write("parts.py", "scale = 2\n")
    for each in (path, parts):
        os.utime(each, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    second = file.run()
    assert (first.scale, first.width) == (1, 1)
    assert (second.scale, second.width) == (2, 2)
    assert not (path.parent / "__pycache__").exists()


@pytest.mark.parametrize(
    ("files", "source", "names"),
    [
        (
            {"parts/__init__.py": "from parts.mlp import depth\n"},
            "import parts\ndepth = parts.depth\n",
            {"__init__.py", "mlp.py", "model.py"},
        ),
        ({}, "from parts import mlp\ndepth = mlp.depth\n", {"model.py", "mlp.py"}),
    ],
    ids=["package", "folder without __init__.py"],
)
def test_imported_folders_are_run_again_after_an_edit(write, files, source, names):
    for name, text in files.items():
        write(name, text)
    write("parts/mlp.py", "depth = 1\n")
    file = UserFile(write("model.py", source))
    assert file.run().depth == 1
    assert {each.name for each in file.files} == names
    write("parts/mlp.py", "depth = 22\n")
    assert file.has_changed
    assert file.run().depth == 22
    assert not file.has_changed


def test_an_edit_during_the_first_run_is_seen(write):
    write("parts.py", "depth = 1\n")
    editing = "import parts, pathlib\npathlib.Path('parts.py').write_text('depth = 2\\n')\ndepth = parts.depth\n"
    file = UserFile(write("model.py", editing))
    assert file.run().depth == 1
    assert file.has_changed
    assert file.run().depth == 2


def test_a_reference_to_a_parent_folder_is_resolved(write, folder, monkeypatch):
    write("parts.py", "width = 1\nx = y\n")
    write("model.py", "import parts\n")
    (folder / "scripts").mkdir()
    monkeypatch.chdir(folder / "scripts")
    path, _ = split_reference("../model.py:make")
    with pytest.raises(ExploreError, match=r"^/.*[^.]/parts\.py:2: the import failed: NameError"):
        UserFile(path).run()


PACKAGE = {
    "lib/__init__.py": "",
    "lib/layers.py": "width = 3\n",
    "lib/datasets.py": "raise ValueError('called as a library is')\n",
    "lib/nets/__init__.py": "",
    "lib/nets/model.py": """
        from ..layers import width
        from lib import layers
        import beside
        def make():
            return width, layers.width
    """,
    "lib/nets/beside.py": "",
}


def test_a_file_of_a_package_is_run_as_the_package_imports_it(write, folder, monkeypatch):
    for name, text in PACKAGE.items():
        write(name, text)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(folder)])
    path = folder / "lib" / "nets" / "model.py"
    as_program(path)
    file = UserFile(path)
    module = file.run()
    assert module.__name__ == "lib.nets.model"
    assert module.make() == (3, 3)
    assert file.folder == folder / "lib"
    assert {each.name for each in file.files} == {"__init__.py", "layers.py", "model.py", "beside.py"}
    write("lib/layers.py", "width = 44\n")
    assert file.has_changed
    assert file.run().make() == (44, 44)
    # A package's files come after the installed ones.
    assert sys.path[0] == str(folder)
    assert sys.path[-1] == str(path.parent)


def test_a_file_shadowed_by_another_module_is_refused(write, folder, monkeypatch):
    write("one/lib/__init__.py", "")
    write("one/lib/model.py", "")
    write("two/lib/__init__.py", "")
    path = write("two/lib/model.py", "")
    monkeypatch.syspath_prepend(str(folder / "one"))
    with pytest.raises(
        ExploreError, match=r"^two/lib/model\.py: .*lib\.model gives another file, .*one/lib/model\.py: it comes first"
    ):
        run_file(path)


def test_a_file_runs_without_arguments_beside_its_neighbours(write, folder, monkeypatch):
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(folder)])
    write("neighbour.py", "x = 1\n")
    path = write("model.py", "import sys, neighbour\narguments = list(sys.argv)\n")
    as_program(path)
    assert run_file(path).arguments == [str(path)]


def test_a_failed_run_keeps_the_earlier_modules(write):
    write("parts.py", "scale = 1\n")
    file = UserFile(write("model.py", "import parts\n"))
    module = file.run()
    before = sys.modules["parts"]
    write("parts.py", "scale = 2\n")
    write("model.py", "import parts\nimport (\n")
    with pytest.raises(ExploreError, match=r"^model\.py:2: .*SyntaxError"):
        file.run()
    write("model.py", "import parts\nx = y\n")
    with pytest.raises(ExploreError, match=r"^model\.py:2: .*NameError"):
        file.run()
    assert sys.modules["parts"] is before
    assert sys.modules[module.__name__] is module


def test_installed_packages_within_the_folder_are_not_run_again(write, folder, monkeypatch):
    site = folder / ".venv" / "lib" / "site-packages"
    site.mkdir(parents=True)
    (site / "installed_for_this_test.py").write_text("runs = []\n")
    monkeypatch.syspath_prepend(str(site))
    file = UserFile(write("model.py", "import installed_for_this_test\ninstalled_for_this_test.runs.append(1)\n"))
    file.run()
    file.run()
    assert sys.modules.pop("installed_for_this_test").runs == [1, 1]
    assert [each.name for each in file.files] == ["model.py"]


# ------------------------------------------------------------------------------------------------------------ places
def test_the_place_of_an_error_is_the_innermost_user_line(write, folder):
    path = write(
        "model.py",
        """
        import torch

        def fails():
            return torch.nn.functional.linear(torch.ones(2), torch.ones(3))
        """,
    )
    module = run_file(path)
    assert place_of(module.fails) == "model.py:4"
    with pytest.raises(RuntimeError) as caught:
        module.fails()
    assert raised_at(caught.value, folder) == "model.py:5"
    assert raised_at(caught.value, folder / "elsewhere") is None
    assert place_of(torch.nn.functional.mse_loss) is None
    with pytest.raises(RuntimeError) as made:
        exec(compile("module.fails()", "<string>", "exec"), {"module": module})
    # Generated code is in no folder.
    assert raised_at(made.value, folder) == "model.py:5"
    # Without a folder, every file that is not installed is the user's: this one too, but further out.
    assert raised_at(caught.value, None) == "model.py:5"


def test_an_edit_while_the_file_runs_counts_even_if_one_looks_meanwhile(write, monkeypatch):
    write("helper.py", "WIDTH = 3\n")
    file = UserFile(write("main.py", "import helper, sys\nsys.modules['edits'].now()\n"))
    monkeypatch.syspath_prepend(str(file.folder))

    def edit():
        write("helper.py", "WIDTH = 44\n")
        return file.has_changed

    monkeypatch.setitem(sys.modules, "edits", SimpleNamespace(now=edit))
    file.run()
    assert file.has_changed
