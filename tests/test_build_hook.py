"""The build hook: which compilers it tries, and with which flags. `test_packaging.py` builds wheels with it."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def hook(monkeypatch):
    """hatch_build.py as a module, where `CC` is not set."""
    monkeypatch.delenv("CC", raising=False)
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_interpreter_that_names_no_compiler_leaves_those_of_the_system(hook, tmp_path, monkeypatch):
    monkeypatch.setattr(hook.shutil, "which", {"gcc": "/bin/gcc", "clang": "/bin/clang"}.get)
    for own in (None, "", " ", "gcc '", "''", "absent-cc -pthread"):
        monkeypatch.setattr(hook.sysconfig, "get_config_var", lambda _, own=own: own)
        assert hook.compilers() == [["gcc"], ["clang"]]
    monkeypatch.setattr(hook.shutil, "which", lambda _: None)
    source = tmp_path / "kernel.c"
    source.write_text("")
    assert "there is no C compiler" in hook.compile_extension(source, tmp_path / "kernel.so")


def test_the_interpreters_own_compiler_comes_first_with_its_options(hook, monkeypatch):
    monkeypatch.setattr(hook.sysconfig, "get_config_var", lambda _: "own-cc -pthread")
    monkeypatch.setattr(hook.shutil, "which", {"own-cc": "/bin/own-cc", "cc": "/bin/cc"}.get)
    assert hook.compilers() == [["own-cc", "-pthread"], ["cc"]]
    monkeypatch.setenv("CC", "'my cc' -m64")
    assert hook.compilers() == [["my cc", "-m64"]]


def test_no_flag_lets_the_compiler_doubt_nan_infinity_order_or_denormals(hook):
    """-ffast-math and what it stands for in GCC's manual, but for what changes no number."""
    fast = "-ffast-math -Ofast -funsafe-math-optimizations -ffinite-math-only -fassociative-math -freciprocal-math"
    fast += " -fno-signed-zeros -fno-rounding-math -fcx-limited-range -fexcess-precision=fast"
    assert not set(fast.split()) & set(hook.FLAGS)
