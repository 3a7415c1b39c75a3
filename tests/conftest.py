"""What tests all over the suite share: the real server, in a process of its own."""

import fcntl
import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import command
from node import Node

torch.set_num_threads(1)  # as the server does: threads that wait for one another only spin


LONGEST = """
    foundations/test_linear_extension
    browser/test_faults browser/test_own_model browser/test_explorer browser/test_dumps browser/test_controls
    browser/test_profile browser/test_predict browser/test_graph_view browser/test_compare browser/test_graph_page
    browser/test_inspector browser/test_layers_view browser/test_diagnosis browser/test_presets browser
    test_cli test_packaging stats/test_kernel web/test_foundations web/test_no_reach web/test_live_fairness
    web/test_kept web/test_connections user_model/test_cli web/test_view spec/test_cost test_read_only test_memory
    gradcheck/test_command models/test_explored_models models/test_real_models models/test_recipes web/test_notebook web
    page/test_modules export/test_pytorch contract/test_success user_model
""".split()
"""Files that take longest, and folders whose other files come together: one Chromium serves all files in a row.

What is compiled goes first, since more than one file needs it.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first: the last one to begin should not keep all other processes waiting."""
    here = Path(__file__).parent
    places = {here / name if "test_" not in name else here / f"{name}.py": at for at, name in enumerate(LONGEST)}

    def place(item: pytest.Item) -> int:
        return places.get(item.path, places.get(item.path.parent, len(places)))

    items.sort(key=place)
    for item in items:
        if "extension_cache" in getattr(item, "fixturenames", ()):
            # Whichever comes first compiles it: 15 s, and minutes on a machine that has much else to do.
            item.add_marker(pytest.mark.timeout(600))


def pytest_collection_finish() -> None:
    """Ten thousand tests and what they import are there to stay: a full garbage collection need not walk them."""
    gc.freeze()


OWN_MODELS = Path(__file__).parent / "shared" / "own_models"


@pytest.fixture(autouse=True)
def _clean_imports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A test's files are imported from their folder; the next test, of whatever file, has others of the same names."""
    path, modules, arguments = list(sys.path), set(sys.modules), sys.argv
    folders = str(OWN_MODELS), str(tmp_path_factory.getbasetemp())
    yield
    sys.path[:] = path
    sys.argv = arguments
    for name in set(sys.modules) - modules:
        module = sys.modules[name]
        # Of a folder without __init__.py the module has no file.
        places = [getattr(module, "__file__", None), *vars(module).get("__path__", ())]
        if any(str(place).startswith(folders) for place in places):
            del sys.modules[name]


@pytest.fixture(scope="session")
def server_url() -> Iterator[str]:
    """The address of `chainrule serve` on a free loopback port, without a slash at the end."""
    with command("serve", "--port", "0") as url:
        yield url


@pytest.fixture(scope="session")
def module() -> Iterator[Callable[..., Any]]:
    """Runs `(module, argument) => …` with the module at a path in `static/core`."""
    with Node() as node:
        yield node.run


@pytest.fixture(scope="session")
def extension_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the C++ extension in it, compiled once per run of the suite. Fails where it cannot be compiled."""
    from chainrule.foundations.linear_extension import build_extension

    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # all workers' folders lie in it
    with (folder / "extension.lock").open("w") as lock, pytest.MonkeyPatch.context() as patch:
        fcntl.flock(lock, fcntl.LOCK_EX)
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        build_extension(cuda=False)
    return folder / "cache"


@pytest.fixture
def linear_extension(extension_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The C++ extension is built, and found."""
    from chainrule.foundations.linear_extension import load_extension

    monkeypatch.setenv("XDG_CACHE_HOME", str(extension_cache))
    load_extension.cache_clear()
    yield
    load_extension.cache_clear()


@pytest.fixture
def no_linear_extension(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The C++ extension is not built."""
    from chainrule.foundations.linear_extension import load_extension

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty-cache"))
    load_extension.cache_clear()
    yield
    load_extension.cache_clear()
