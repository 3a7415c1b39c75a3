"""What tests all over the suite share: the real server, in a process of its own."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator

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
