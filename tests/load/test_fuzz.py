"""Requests that the API's description allows and forbids, by schemathesis: all its checks and two of ours."""

import os
import re
import subprocess
import sys
from pathlib import Path

import httpx

HERE = Path(__file__).parent


def test_the_api_does_what_its_description_says(serve, figure):
    # Long trainings are allowed, and end at the deadline: a short one leaves the time to other requests.
    with serve(deadline_seconds=2) as server:
        operations = sum(len(methods) for methods in httpx.get(f"{server.url}/openapi.json").json()["paths"].values())
        run = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(HERE / "fuzz.toml"), "run"),
                *(f"{server.url}/openapi.json", "--checks", "all", "--mode", "all", "--no-color"),
            ],
            cwd=HERE,
            env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=280,
        )
        said = run.stdout + run.stderr
        found = re.search(r"([\d,]+) generated(?:, (\d+) found (\d+) unique failures)?", said)
        assert found, said[-8000:]
        tested = re.search(r"Tested: (\d+)", said)
        figure("operations", int(tested[1]) if tested else 0, "", f"== {operations}")
        figure("cases", int(found[1].replace(",", "")), "", ">= 1000")
        failures = int(found[3] or 0)
        if failures or run.returncode:
            print(said)
        figure("failures", failures, "", "== 0")
        assert run.returncode == 0, said[-8000:]
        work = server.wait_idle(30)
        figure("work that broke", work.total("work_failed_total", code="internal"), "", "== 0")
