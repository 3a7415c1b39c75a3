"""What tests all over the suite share: the real server, in a process of its own."""

import fcntl
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)  # as the server does: threads that wait for one another only spin


@pytest.fixture(scope="session")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of `chainrule serve` on a free loopback port, without a slash at the end."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CHAINRULE_")}
    log = tmp_path_factory.mktemp("server") / "stderr.txt"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "chainrule", "serve", "--port", "0"],
            env=environment | {"PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        try:
            for line in process.stdout:
                if match := re.search(r"http://\S+", line):
                    yield match[0].rstrip("/")
                    break
            else:
                pytest.fail(f"the server did not start:\n{log.read_text()}")
        finally:
            process.terminate()
            process.wait(timeout=20)


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
