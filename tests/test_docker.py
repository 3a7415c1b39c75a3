"""Promises of the image and the composition, read from the files: tests have no container engine."""

import ipaddress
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml

from chainrule.settings import Settings
from chainrule.web.guard import SECURITY_HEADERS

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
PROXY = (ROOT / "deploy" / "nginx.conf").read_text()


def read_stages(text):
    """Stages of (instruction, arguments), comments dropped and continued lines joined."""
    joined = re.sub(r"\\\n\s*", " ", re.sub(r"(?m)^\s*#.*\n", "", text))
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


def environment_of(stage=-1):
    """Variables that ENV sets in a stage."""
    words = [word for arguments in arguments_of("ENV", stage) for word in shlex.split(arguments)]
    return dict(word.split("=", 1) for word in words)


def settings_of(environment):
    given = {name: str(value) for name, value in environment.items() if name.startswith("CHAINRULE_")}
    return Settings(**{name.removeprefix("CHAINRULE_").lower(): value for name, value in given.items()})


def test_its_settings_are_settings_and_those_that_a_container_needs():
    settings = settings_of(environment_of())
    assert (settings.host, settings.port) == ("0.0.0.0", int(last("EXPOSE")))
    assert not settings.insecure, "who may talk to it is asked for a token"
    assert settings.token is None, "no token that others know too"
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", last("USER")), "not root"
    assert environment_of()["PYTHONUNBUFFERED"] == "1", "the link is printed at once"
    assert (settings.log_format, settings.log_level) == ("json", "info")


def test_everything_it_copies_exists_and_is_sent_to_the_builder():
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert ignored[0] == "*", "everything is left out that is not named"
    copied = [each for stage in range(len(STAGES)) for each in arguments_of("COPY", stage) if "--from" not in each]
    names = {name for arguments in copied for name in shlex.split(arguments)[:-1]}
    assert [name for name in names if not (ROOT / name).exists()] == []
    assert {line.removeprefix("!") for line in ignored if line.startswith("!")} == names, "and nothing else is"


def test_it_installs_only_files_with_known_hashes_but_for_pytorch():
    commands = [
        each.strip() for stage in range(len(STAGES)) for run in arguments_of("RUN", stage) for each in run.split("&&")
    ]
    installs = [each for each in commands if re.match(r"python -m pip .*\binstall\b", each)]
    hashed = [each for each in installs if re.search(r"--no-deps --require-hashes -r requirements/\w+\.txt$", each)]
    assert len(hashed) == 3
    others = [each for each in installs if each not in hashed]
    assert [each.split()[-1] for each in others] == ["torch", "dist/*.whl"]
    assert "--no-deps" in others[1]
    assert "--no-deps --no-build-isolation" in next(each for each in commands if "pip wheel" in each)
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"(?m)^INSTALL_HASHED := .* --no-deps --require-hashes$", makefile)
    assert len(re.findall(r"(?m)^\t@\$\(INSTALL_HASHED\) -r requirements/server.txt", makefile)) == 2


def test_base_images_and_services_of_others_have_a_version_and_a_digest():
    built = re.findall(r"(?m)^FROM \S+ AS (\w+)$", TEXT)
    used = [image for image in re.findall(r"(?m)^FROM (\S+)", TEXT) if image not in built]
    used += [service["image"] for service in COMPOSE["services"].values() if service["image"] != "chainrule"]
    assert sorted(image.partition(":")[0] for image in used) == ["caddy", "nginx", "python"]
    assert [image for image in used if not re.fullmatch(r"\w+:\d+\.\d+\.\d+-[\w-]+@sha256:[0-9a-f]{64}", image)] == []


def copied_from(target):
    """The file here that the image has at this path."""
    (source,) = [each.split()[0] for each in arguments_of("COPY") if each.split()[-1] == target]
    return str(ROOT / source)


@pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is this machine on Linux, as in the image")
def test_the_health_check_asks_where_the_server_is_told_to_listen():
    _, *arguments = json.loads(last("HEALTHCHECK").partition("CMD ")[2])
    arguments[-1] = copied_from(arguments[-1])

    class Alive(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, *_):
            pass

    # A check of 127.0.0.1 would not find it here.
    with HTTPServer(("127.0.0.2", 0), Alive) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        environment = os.environ | {"CHAINRULE_HOST": "127.0.0.2", "CHAINRULE_PORT": str(server.server_port)}
        done = subprocess.run([sys.executable, *arguments], check=False, capture_output=True, env=environment)
        server.shutdown()
        server.server_close()
        gone = subprocess.run([sys.executable, *arguments], check=False, capture_output=True, env=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert gone.returncode != 0


HANGS = """
import socket, sys, time
listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
time.sleep(1000)
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc, as in the image")
def test_the_check_of_a_replica_ends_a_server_that_hangs_and_no_other():
    check = [*REPLICAS["chainrule-1"]["healthcheck"]["test"][1:]]
    assert check[0] == "python"
    check = [sys.executable, *(copied_from(each) if each.endswith(".py") else each for each in check[1:])]
    with (
        subprocess.Popen([sys.executable, "-c", HANGS], stdout=subprocess.PIPE, text=True) as hanging,
        subprocess.Popen([sys.executable, "-c", HANGS], stdout=subprocess.PIPE, text=True) as other,
    ):
        try:
            environment = os.environ | {
                "CHAINRULE_HOST": "127.0.0.1",
                "CHAINRULE_PORT": hanging.stdout.readline().strip(),
            }
            # The image's own check leaves it.
            assert subprocess.run(check[:-1], check=False, env=environment).returncode == 1
            assert hanging.poll() is None
            assert subprocess.run(check, check=False, env=environment).returncode == 1
            assert hanging.wait() == -signal.SIGKILL
            # Nobody listens now: a server that still starts is not ended.
            assert subprocess.run(check, check=False, env=environment).returncode == 1
            assert other.poll() is None
        finally:
            hanging.kill()
            other.kill()


# The composition: two replicas behind a proxy.

SERVICES = COMPOSE["services"]
REPLICAS = {name: service for name, service in SERVICES.items() if name.startswith("chainrule-")}


PLAIN = re.sub(r"(?m)^\s*#.*\n", "", PROXY)
"""The proxy's configuration without comments."""


def directives(text):
    """Every directive of a configuration or of one of its blocks, as its words."""
    return [shlex.split(line.rstrip(" ;{")) for line in text.splitlines() if line.strip(" }")]


def directives_in(*block):
    """The directives of one block, by its words."""
    (start,) = re.finditer(r"^( *)" + r"\s+".join(map(re.escape, block)) + r" \{$", PLAIN, re.MULTILINE)
    return directives(PLAIN[start.end() :].partition(f"\n{start[1]}}}")[0])


def directive(name):
    """The arguments of a directive that is there once."""
    (found,) = [words[1:] for words in directives(PLAIN) if words[0] == name]
    return found


def seconds(text):
    return float(re.fullmatch(r"([\d.]+)s", text)[1])


def bytes_of(text):
    return int(text[:-1]) << {"m": 20, "g": 30}[text[-1]]


def test_a_service_can_change_nothing_and_take_no_more_than_its_share():
    for service in SERVICES.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert {"mem_limit", "cpus", "pids_limit"} <= service.keys()
        assert not {"privileged", "devices", "network_mode", "pid"} & service.keys()
    assert {name: service["cap_add"] for name, service in SERVICES.items() if "cap_add" in service} == {
        "tls": ["NET_BIND_SERVICE"]
    }


def test_two_replicas_are_alike_and_only_the_proxy_is_reached_from_outside():
    assert list(REPLICAS) == ["chainrule-1", "chainrule-2"]
    assert REPLICAS["chainrule-1"] == REPLICAS["chainrule-2"]
    assert REPLICAS["chainrule-1"]["networks"] == ["inside"]
    assert COMPOSE["networks"]["inside"] == {"internal": True}
    assert {name: service["ports"] for name, service in SERVICES.items() if "ports" in service} == {
        "proxy": ["${PUBLISH:-127.0.0.1:8000}:8080"],
        "tls": ["80:8080", "443:8443"],
    }
    assert SERVICES["tls"]["profiles"] == ["tls"]


def test_a_replica_is_the_image_with_settings_that_are_settings():
    replica = REPLICAS["chainrule-1"]
    given = replica["environment"]
    # It does not start without a token, and says why.
    assert re.fullmatch(r"\$\{CHAINRULE_TOKEN:\?[^}]+\}", given["CHAINRULE_TOKEN"])
    values = {name: re.sub(r"\$\{\w+:[-+][^}]*\}", "", value) for name, value in given.items()}
    settings = settings_of(values | {"CHAINRULE_TOKEN": "a-token-of-some-length"})
    assert settings.allowed_hosts == ()
    assert settings.trusted_proxies == ("*",)
    # The process itself takes half a gibibyte.
    assert settings.max_memory_bytes + settings.max_kept_bytes + (512 << 20) <= bytes_of(replica["mem_limit"])
    assert seconds(replica["stop_grace_period"]) >= 10


def test_the_cluster_is_the_image_and_nothing_reaches_it():
    cluster = {name: SERVICES[name] for name in ("scheduler", "worker", "sweep")}
    for service in cluster.values():
        assert service["image"] == REPLICAS["chainrule-1"]["image"]
        assert service["networks"] == ["cluster"]
    assert COMPOSE["networks"]["cluster"] == {"internal": True}
    assert [service["profiles"] for service in cluster.values()] == [["cluster"], ["cluster"], ["sweep"]]
    assert "requirements/server.txt" in " ".join(arguments_of("RUN", 1))
    assert "\ndistributed==" in (ROOT / "requirements" / "server.txt").read_text(), "the image has Dask"


@pytest.mark.parametrize("name", ["scheduler", "worker"])
def test_dask_knows_the_arguments_of_the_cluster(name):
    _, subcommand, *arguments = SERVICES[name]["entrypoint"]
    code = f"from distributed.cli.dask_{subcommand} import main; main()"
    said = subprocess.run([sys.executable, "-c", code, "--help"], check=True, capture_output=True, text=True).stdout
    for argument in arguments:
        assert not argument.startswith("--") or re.search(rf"(^|\s|/ ){argument}\b", said), argument
    assert ("tcp://scheduler:8786" in arguments) == (subcommand == "worker")


def test_a_sweep_on_the_cluster_names_its_scheduler():
    assert SERVICES["sweep"]["entrypoint"] == ["chainrule", "sweep", "--scheduler", "tcp://scheduler:8786"]
    port = SERVICES["scheduler"]["entrypoint"]
    assert port[port.index("--port") + 1] == "8786"


def test_the_proxy_knows_both_replicas_and_goes_to_the_other_where_one_is_down():
    port = environment_of()["CHAINRULE_PORT"]
    servers = [words[1:] for words in directives(PLAIN) if words[0] == "server" and len(words) > 1]
    assert [each[0] for each in servers] == [f"{name}:{port}" for name in REPLICAS]
    for server in servers:
        assert "resolve" in server, "a replica made anew has another address"
        assert "max_fails=0" in server, "none is set aside while the other may be down"
    assert directive("resolver")[0] == "127.0.0.11"
    # POST too; and no status: a busy replica is not one that is down.
    assert set(directive("proxy_next_upstream")) == {"error", "timeout", "non_idempotent"}


def test_the_proxy_waits_longer_than_the_deadlines():
    settings = Settings()
    read = seconds(*directive("proxy_read_timeout"))
    assert read > settings.deadline_seconds + settings.shutdown_seconds
    # Live sockets are pinged this often, and are silent no longer.
    assert read > 2 * settings.send_seconds
    assert seconds(*directive("proxy_connect_timeout")) <= 2
    for name in ("client_header_timeout", "client_body_timeout", "send_timeout"):
        assert seconds(*directive(name)) <= 12, "slow clients are closed"
    assert bytes_of(*directive("client_max_body_size")) > settings.max_body_bytes, "the server's own answer goes first"


def test_the_proxy_passes_on_what_the_server_judges_by():
    headers = {words[1]: words[2] for words in directives(PLAIN) if words[0] == "proxy_set_header"}
    assert headers == {
        "Host": "$http_host",
        # Those of a trusted proxy: the cookie is Secure where TLS is. A client's own headers do not count.
        "X-Forwarded-For": "$remote_addr",
        "X-Forwarded-Proto": "$forwarded_proto",
        "Upgrade": "$http_upgrade",
        "Connection": "$connection_upgrade",
    }
    assert directive("real_ip_header") == ["X-Forwarded-For"]
    ((pattern, direct),) = [
        each
        for each in directives_in("map", '"$remote_addr $realip_remote_addr"', "$is_direct")
        if each[0] != "default"
    ]
    # nginx replaces the address of a trusted proxy alone.
    assert (re.match(pattern.removeprefix("~"), "1.2.3.4 1.2.3.4") is not None, direct) == (True, "1")
    assert not re.match(pattern.removeprefix("~"), "1.2.3.4 172.30.77.2")
    schemes = dict(directives_in("map", '"$is_direct $http_x_forwarded_proto"', "$forwarded_proto"))
    assert schemes == {"default": "$scheme", "0 https": "https"}


def test_the_proxy_trusts_caddy_alone():
    trusted = [line.split() for line in (ROOT / "deploy" / "trusted.conf").read_text().splitlines() if line[:1] != "#"]
    address = SERVICES["tls"]["networks"]["outside"]["ipv4_address"]
    assert trusted == [["set_real_ip_from", f"{address};"]]
    (subnet,) = COMPOSE["networks"]["outside"]["ipam"]["config"]
    addresses = [each["networks"]["outside"]["ipv4_address"] for each in (SERVICES["tls"], SERVICES["proxy"])]
    # Docker's own address is the first of the network.
    hosts = [str(each) for each in ipaddress.ip_network(subnet["subnet"]).hosts()]
    assert sorted(addresses) == hosts[1:3]


def test_one_address_cannot_take_all():
    assert directive("limit_req")[0] == "zone=requests"
    assert directive("limit_conn")[0] == "connections"
    places = 2 * Settings().max_sockets
    assert Settings().max_sockets < int(directive("limit_conn")[1]) < places
    assert directive("limit_req_status") == directive("limit_conn_status") == ["429"]
    assert any(words[0] == "error_page" and "429" in words for words in directives(PLAIN)), "in the shape of all errors"


def test_tls_reaches_the_proxy():
    caddy = (ROOT / "deploy" / "Caddyfile").read_text()
    assert "reverse_proxy proxy:8080" in caddy
    ports = [each.partition(":")[2] for each in SERVICES["tls"]["ports"]]
    assert [f"http_port {ports[0]}" in caddy, f"https_port {ports[1]}" in caddy] == [True, True]
    # Caddy would write down the link of a request that fails.
    assert re.search(r"request>uri query \{\s+delete token\s+\}", caddy)
    assert SERVICES["tls"]["environment"].keys() == set(re.findall(r"\{\$(\w+)\}", caddy))


def test_the_proxy_writes_down_no_token():
    assert set(re.findall(r"\$(\w+)", " ".join(directive("log_format")))) == {
        "remote_addr", "logged", "status", "body_bytes_sent", "request_time", "upstream_addr", "upstream_status",
    }  # fmt: skip
    ((pattern, value),) = directives_in("map", "$request", "$logged")
    name = re.search(r"\(\?<(\w+)>", pattern)[1]
    assert value == f"${name}"
    found = re.compile(pattern.removeprefix("~").replace("?<", "?P<"))
    for request, logged in {
        "GET /?token=secret HTTP/1.1": "GET /",
        "POST /api/v1/trace?seed=1&token=secret HTTP/1.1": "POST /api/v1/trace",
        "GET http://127.0.0.1:8000/?token=secret HTTP/1.1": "GET http://127.0.0.1:8000/",
        "GET ?token=secret": "GET ",
    }.items():
        assert found.search(request)[name] == logged
    assert not found.search("?token=secret GET")
    # Errors of single requests are logged with their whole first line.
    assert "\nerror_log /dev/stderr warn;" in PLAIN
    assert ["error_log", "/dev/null", "crit"] in directives_in("http")


def test_what_the_proxy_says_itself_has_the_shape_and_the_headers_of_every_error():
    (own,) = {words[-1] for words in directives(PLAIN) if words[0] == "error_page"}
    assert own.startswith("/"), "a request that cannot be read is led to no named location"
    own = directives_in("location", "=", own)
    assert ["internal"] in own
    assert ["default_type", "application/json"] in own
    headers = {words[1].lower(): words[2] for words in own if words[0] == "add_header" and words[3:] == ["always"]}
    assert headers == SECURITY_HEADERS | {"cache-control": "no-store", "retry-after": "$own_retry_after"}
    (body,) = [words[2] for words in directives(PLAIN) if words[0] == "return" and len(words) > 2]
    codes, messages = (dict(directives_in("map", "$status", f"$own_{name}")) for name in ("code", "message"))
    for status in codes.keys() | messages.keys():
        code, message = codes.get(status, codes["default"]), messages.get(status, messages["default"])
        error = json.loads(body.replace("$own_code", code).replace("$own_message", message))["error"]
        assert error == {"code": code, "message": message}
    assert (codes["413"], codes["503"], codes["404"]) == ("body_too_large", "busy", "not_found")
