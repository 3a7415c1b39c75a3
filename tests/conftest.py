"""Fixtures of the whole suite: the real server, Node.js, the compiled extension."""

import asyncio
import fcntl
import gc
import inspect
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from command import command
from node import Node

# The same examples in every run: `make load` searches for new ones. No limit of time, which a busy machine misses.
hypothesis.settings.register_profile(
    "suite", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("suite")

FIRST = "foundations/test_linear_extension.py browser test_cli.py test_packaging.py stats web user_model".split()
"""The longest files begin first, so that no process ends long after the others."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    places = {here / name: at for at, name in enumerate(FIRST)}
    items.sort(key=lambda item: min(places.get(path, len(places)) for path in (item.path, *item.path.parents)))
    for item in items:
        if here / "browser" in item.path.parents:
            item.add_marker("browser")
        if "extension_cache" in getattr(item, "fixturenames", ()):
            # Whichever comes first compiles it: 15 s, and minutes on a machine that has much else to do.
            item.add_marker(pytest.mark.timeout(600))


def pytest_collection_finish() -> None:
    import torch  # not above: the process that only gives the others their tests does without it

    torch.set_num_threads(1)  # as the server does: threads that wait for one another only spin
    # Ten thousand tests and what they import are there to stay: a full garbage collection need not walk them.
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # as the server has


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run tests that are coroutines, each in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
    return True


USER_MODELS = Path(__file__).parent / "shared" / "user_models"

_imported: tuple[tuple[int, str], set[str]] = (0, ""), set()


def imported() -> set[str]:
    """The names of all imported modules. There are thousands: they are read again only after an import."""
    global _imported
    state = len(sys.modules), next(reversed(sys.modules))  # a new one is the last
    if state != _imported[0]:
        _imported = state, set(sys.modules)
    return _imported[1]


@pytest.fixture(autouse=True)
def _clean_imports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A test's files are imported from their folder; the next test, of whatever file, has others of the same names."""
    path, modules, arguments = list(sys.path), imported(), sys.argv
    folders = str(USER_MODELS), str(tmp_path_factory.getbasetemp())
    yield
    sys.path[:] = path
    sys.argv = arguments
    for name in imported() - modules:
        module = sys.modules[name]
        # A folder without __init__.py is a module without a file.
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


@pytest.fixture
def in_two_threads() -> Iterator[Callable[[Callable[[], Any], int], list[Any]]]:
    """`(run, times)`: the results of two threads that both call `run` so often, each time together."""

    def results(run: Callable[[], Any], times: int) -> list[Any]:
        found: list[Any] = []
        barrier = threading.Barrier(2)

        def repeatedly() -> None:
            for _ in range(times):
                barrier.wait(timeout=60)
                found.append(run())

        threads = [threading.Thread(target=repeatedly) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 2 * times
        return found

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield results
    sys.setswitchinterval(interval)


@pytest.fixture(scope="session")
def guide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documents, built as the package builds them."""
    folder = tmp_path_factory.mktemp("guide")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


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


@pytest.fixture
def without_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if the JavaScript engine of pictures were not installed."""
    from chainrule.export import svg

    (tmp_path / "py_mini_racer.py").write_text("raise ImportError('not installed')\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), os.environ.get("PYTHONPATH", ""))))
    svg._engine.close()
    yield
    svg._engine.close()
