"""What the Dockerfile promises, read from the file itself: a build needs an engine, a promise does not."""

import json
import re
import shlex
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

from typer.testing import CliRunner

from chainrule.__main__ import commands
from chainrule.settings import Settings

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "Dockerfile").read_text()


def read_stages(text):
    """Stages of (instruction, arguments), comments dropped and continued lines joined."""
    joined = re.sub(r"\\\n\s*", " ", re.sub(r"(?m)^#.*\n", "", text))
    stages = []
    for line in filter(None, map(str.strip, joined.splitlines())):
        instruction, _, arguments = line.partition(" ")
        if instruction == "FROM":
            stages.append([])
        stages[-1].append((instruction, arguments.strip()))
    return stages


STAGES = read_stages(TEXT)


def arguments_of(instruction, stage=-1):
    return [arguments for name, arguments in STAGES[stage] if name == instruction]


def last(instruction):
    return arguments_of(instruction)[-1]


def healthcheck():
    return json.loads(last("HEALTHCHECK").partition("CMD ")[2])


def test_two_stages_on_one_pinned_python():
    images = [arguments_of("FROM", stage)[0].split()[0] for stage in range(len(STAGES))]
    assert len(images) == 2
    assert len(set(images)) == 1
    assert re.fullmatch(r"python:3\.1[1-9]-slim", images[0])


def test_nothing_but_the_environment_leaves_the_build_stage():
    copies = [shlex.split(each) for each in arguments_of("COPY")]
    assert copies == [["--from=build", "/opt/chainrule", "/opt/chainrule"]]
    assert not arguments_of("ADD")


def test_it_runs_as_a_number_that_is_not_root():
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", last("USER"))
    after = [name for name, _ in STAGES[-1]]
    assert not {"COPY", "RUN"} & set(after[after.index("USER") :])


def test_commands_are_lists_so_that_signals_arrive():
    assert json.loads(last("ENTRYPOINT")) == ["chainrule"]
    assert json.loads(last("CMD"))[0] == "serve"
    assert isinstance(healthcheck(), list)
    assert "<<" not in TEXT, "no heredocs: older builders do not know them"


def test_it_listens_on_every_interface_at_the_exposed_port():
    options = json.loads(last("CMD"))[1:]
    given = dict(zip(options[::2], options[1::2], strict=True))
    assert given == {"--host": "0.0.0.0", "--port": last("EXPOSE")}
    settings = Settings(host=given["--host"], port=given["--port"])
    assert settings.port == 8000
    assert not settings.is_loopback


def test_the_options_it_gives_are_ones_that_serve_takes():
    shown = CliRunner().invoke(commands, ["serve", "--help"], terminal_width=200).output
    assert all(option in shown for option in json.loads(last("CMD")) if option.startswith("--"))


def test_output_is_unbuffered_so_that_the_link_is_seen():
    assert "PYTHONUNBUFFERED=1" in last("ENV")


def test_pytorch_comes_from_the_cpu_index_unless_told_otherwise():
    assert arguments_of("ARG", 0) == ["TORCH_INDEX=https://download.pytorch.org/whl/cpu"]
    assert "${TORCH_INDEX:+--extra-index-url" in TEXT
    assert "-c constraints.txt" in TEXT


def test_everything_it_copies_exists_and_is_sent_to_the_builder():
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert ignored[0] == "*", "everything is left out that is not named"
    for arguments in arguments_of("COPY", 0):
        for name in shlex.split(arguments)[:-1]:
            assert (ROOT / name).exists(), name
            assert f"!{name}" in ignored, name
    assert any(fnmatch("app/chainrule/__pycache__", pattern) for pattern in ignored if "pycache" in pattern)


def test_the_health_check_tells_a_server_from_none(server_url):
    program, *arguments = healthcheck()
    assert program == "python"
    assert "curl" not in TEXT
    exposed = f"127.0.0.1:{last('EXPOSE')}"
    assert exposed in arguments[-1]

    def check(address):
        command = [sys.executable, *(each.replace(exposed, address) for each in arguments)]
        return subprocess.run(command, check=False, capture_output=True).returncode

    assert check(server_url.removeprefix("http://")) == 0
    assert check("127.0.0.1:1") != 0


def test_it_names_no_host_but_pytorchs_index():
    assert set(re.findall(r"https?://([^/:\s]+)", TEXT)) == {"download.pytorch.org", "127.0.0.1"}
