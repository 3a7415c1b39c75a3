"""The settings: from the environment, checked, described."""

import os
import subprocess
from pathlib import Path

import pytest
from pydantic import ValidationError

from chainrule.settings import Settings, is_loopback, read_settings

pytestmark = pytest.mark.smoke


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch):
    for name in Settings.model_fields:
        monkeypatch.delenv(f"CHAINRULE_{name.upper()}", raising=False)


def test_by_default_only_this_machine_can_reach_it():
    settings = Settings()
    assert (settings.host, settings.port) == ("127.0.0.1", 8000)
    assert settings.is_loopback
    assert settings.token is None
    assert (settings.max_depth, settings.max_width, settings.max_batch) == (64, 1024, 1024)
    assert (settings.queue, settings.threads) == (8, 1)


def test_the_environment_is_read(monkeypatch):
    monkeypatch.setenv("CHAINRULE_PORT", "9001")
    monkeypatch.setenv("CHAINRULE_MAX_DEPTH", "200")
    monkeypatch.setenv("CHAINRULE_TOKEN", "correct-horse_battery")
    monkeypatch.setenv("CHAINRULE_ALLOWED_HOSTS", "Class.example, other.example,")
    settings = Settings()
    assert (settings.port, settings.max_depth) == (9001, 200)
    assert settings.token is not None
    assert settings.token.get_secret_value() == "correct-horse_battery"
    assert settings.allowed_hosts == ("class.example", "other.example")


def test_a_token_that_no_link_can_carry_is_refused_and_not_repeated(monkeypatch):
    for token in ("short", "with space inside", "semi;colon;", "ümlaut-token", "x" * 257, "line\nbreak1"):
        monkeypatch.setenv("CHAINRULE_TOKEN", token)
        with pytest.raises(ValidationError) as caught:
            Settings()
        assert token not in str(caught.value)
    monkeypatch.setenv("CHAINRULE_TOKEN", "")
    assert Settings().token is None


def test_a_token_does_not_show_in_a_representation():
    assert "correct-horse" not in repr(Settings(token="correct-horse"))


def test_a_bad_value_is_refused(monkeypatch):
    for name, value in {"PORT": "70000", "MAX_DEPTH": "0", "QUEUE": "-1", "LOG_LEVEL": "loud"}.items():
        monkeypatch.setenv(f"CHAINRULE_{name}", value)
        with pytest.raises(ValidationError, match=name.lower()):
            Settings()


def test_the_error_is_one_line_with_each_value_but_the_token(monkeypatch):
    monkeypatch.setenv("CHAINRULE_TOKEN", "a secret")
    monkeypatch.setenv("CHAINRULE_PORT", "http")
    with pytest.raises(ValueError, match=r"CHAINRULE_PORT: 'http': .*; CHAINRULE_TOKEN: a token is 8 to") as caught:
        read_settings()
    assert "a secret" not in str(caught.value)
    assert read_settings(port=1, token=None).port == 1


def test_which_hosts_are_loopback():
    for host in ("127.0.0.1", "127.8.9.1", "localhost", "LOCALHOST", "::1", "[::1]"):
        assert is_loopback(host), host
    for host in ("0.0.0.0", "::", "192.168.1.4", "localhost.example", "a.localhost", ""):
        assert not is_loopback(host), host


def test_make_run_listens_where_the_settings_say():
    settings = {"CHAINRULE_HOST": "127.0.0.2", "CHAINRULE_PORT": "9001"}
    for given, told in [({}, "127.0.0.1 --port 8000"), (settings, "127.0.0.2 --port 9001")]:
        environment = {name: value for name, value in os.environ.items() if name not in {*settings, "PORT"}}
        command = ["make", "--dry-run", "--no-print-directory", "run"]
        root = Path(__file__).parents[1]
        planned = subprocess.run(command, cwd=root, env=environment | given, capture_output=True, text=True, check=True)
        assert f"serve --host {told}" in planned.stdout
