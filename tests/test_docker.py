"""What the image and the composition promise, read from the files: a build needs an engine, a promise does not."""

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from simple_yaml import read_yaml

from chainrule.settings import Settings
from chainrule.web.guard import SECURITY_HEADERS

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "Dockerfile").read_text()
COMPOSE_TEXT = (ROOT / "compose.yaml").read_text()
COMPOSE = read_yaml(COMPOSE_TEXT)
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
    """What ENV sets in a stage."""
    words = [word for arguments in arguments_of("ENV", stage) for word in shlex.split(arguments)]
    return dict(word.split("=", 1) for word in words)


def healthcheck():
    return json.loads(last("HEALTHCHECK").partition("CMD ")[2])


def test_all_stages_stand_on_one_pinned_python():
    names = [arguments_of("FROM", stage)[0].partition(" AS ") for stage in range(len(STAGES))]
    made = {name for _, _, name in names}
    images = {image for image, _, _ in names} - made
    assert len(images) == 1
    assert re.fullmatch(r"python:3\.1[1-9]-slim", images.pop())


def test_nothing_but_the_environment_and_chainrule_leaves_the_build_stages():
    copies = [shlex.split(each) for each in arguments_of("COPY")]
    assert copies == [
        # The large layer first: a new version of Chainrule leaves it as it is.
        ["--from=pruned", "/opt/python", "/opt/python"],
        ["--from=chainrule", "/opt/chainrule", "/opt/chainrule"],
    ]
    assert not any(arguments_of("ADD", stage) for stage in range(len(STAGES)))
    assert "apt-get" not in " ".join(arguments_of("RUN")), "no compiler in what runs"


def test_dependencies_are_installed_before_the_source_is_copied():
    before = [shlex.split(each)[:-1] for each in arguments_of("COPY", 0)]
    assert before == [["constraints.txt", "pyproject.toml"]]


def test_pictures_and_the_extension_are_there():
    assert "['optional-dependencies']['render']" in arguments_of("RUN", 0)[-1]
    assert "chainrule build-extension" in arguments_of("RUN", 1)[-1]
    # Found where it was built.
    assert environment_of()["XDG_CACHE_HOME"] == environment_of(1)["XDG_CACHE_HOME"]
    assert environment_of()["XDG_CACHE_HOME"].startswith("/opt/chainrule/")


def test_it_runs_as_a_number_that_is_not_root():
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", last("USER"))
    after = [name for name, _ in STAGES[-1]]
    assert not {"COPY", "RUN"} & set(after[after.index("USER") :])


def test_commands_are_lists_so_that_signals_arrive():
    assert json.loads(last("ENTRYPOINT")) == ["chainrule"]
    assert json.loads(last("CMD")) == ["serve"]
    assert last("STOPSIGNAL") == "SIGTERM"
    assert isinstance(healthcheck(), list)
    assert "<<" not in TEXT, "no heredocs: older builders do not know them"


def test_its_settings_are_settings_and_those_that_a_container_needs():
    given = {name: value for name, value in environment_of().items() if name.startswith("CHAINRULE_")}
    settings = Settings(**{name.removeprefix("CHAINRULE_").lower(): value for name, value in given.items()})
    assert (settings.host, settings.port) == ("0.0.0.0", int(last("EXPOSE")))
    assert not settings.is_loopback
    assert not settings.insecure, "who may talk to it is asked for a token"
    assert settings.token is None, "no token that others know too"
    assert (settings.log_format, settings.log_level) == ("json", "info")


def test_bytecode_is_made_by_the_build_and_not_while_it_runs():
    assert environment_of()["PYTHONDONTWRITEBYTECODE"] == "1"
    assert "compileall" in " ".join(arguments_of("RUN"))
    assert "--no-compile" not in TEXT


def test_output_is_unbuffered_so_that_the_link_is_seen():
    assert environment_of()["PYTHONUNBUFFERED"] == "1"


def test_pytorch_comes_from_the_cpu_index_unless_told_otherwise():
    assert arguments_of("ARG", 0) == ["TORCH_INDEX=https://download.pytorch.org/whl/cpu"]
    assert "${TORCH_INDEX:+--extra-index-url" in TEXT
    assert "-c constraints.txt" in TEXT


def test_everything_it_copies_exists_and_is_sent_to_the_builder():
    ignored = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert ignored[0] == "*", "everything is left out that is not named"
    copied = [each for stage in range(len(STAGES)) for each in arguments_of("COPY", stage) if "--from" not in each]
    names = {name for arguments in copied for name in shlex.split(arguments)[:-1]}
    for name in names:
        assert (ROOT / name).exists(), name
    assert {line.removeprefix("!") for line in ignored if line.startswith("!")} == names, "and nothing else is"
    assert any(fnmatch("app/chainrule/__pycache__", pattern) for pattern in ignored if "pycache" in pattern)


def test_the_health_check_tells_a_server_from_none(server_url):
    program, *arguments = healthcheck()
    assert program == "python"
    assert "curl" not in TEXT

    def check(host, port):
        # A proxy that the environment names is not asked.
        environment = os.environ | {"CHAINRULE_HOST": host, "CHAINRULE_PORT": str(port)}
        command = [sys.executable, *arguments]
        environment |= {"HTTP_PROXY": "http://127.0.0.1:1"}
        return subprocess.run(command, check=False, capture_output=True, env=environment).returncode

    port = server_url.rpartition(":")[2]
    assert check(environment_of()["CHAINRULE_HOST"], port) == 0
    assert check("127.0.0.1", port) == 0
    assert check(environment_of()["CHAINRULE_HOST"], 1) != 0


@pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is this machine on Linux, as in the image")
def test_the_health_check_asks_where_the_server_is_told_to_listen():
    """Which is all it can know: options of `serve` are on no variable, and the README says so."""
    _, *arguments = healthcheck()

    class Alive(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, *_):
            pass

    # Loopback, and not where a check of 127.0.0.1 would find it.
    with HTTPServer(("127.0.0.2", 0), Alive) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        environment = os.environ | {"CHAINRULE_HOST": "127.0.0.2", "CHAINRULE_PORT": str(server.server_port)}
        done = subprocess.run([sys.executable, *arguments], check=False, capture_output=True, env=environment)
        server.shutdown()
    assert (done.returncode, done.stderr) == (0, b"")
    section = (ROOT / "README.md").read_text().partition("### In a container")[2].partition("\n#")[0]
    assert "`-e CHAINRULE_PORT=…` or `-e CHAINRULE_HOST=…`" in section


def test_it_names_no_host_but_pytorchs_index():
    assert set(re.findall(r"https?://([^/:\s]+)", TEXT)) == {"download.pytorch.org"}


# The composition: two replicas behind a proxy.

SERVICES = COMPOSE["services"]
REPLICAS = {name: service for name, service in SERVICES.items() if name.startswith("chainrule-")}


NGINX_TOKEN = re.compile(
    r"""(?:^|(?<=\s))\#[^\n]*|'(?P<single>[^']*)'|"(?P<double>[^"]*)"|(?P<end>[;{}])|(?P<word>[^\s;{}]+)""", re.VERBOSE
)


def read_blocks(text):
    """Every directive of an nginx configuration, as its words and the words of the blocks that it stands in."""
    found, words, blocks = [], [], []
    for token in NGINX_TOKEN.finditer(text):
        if token["end"] in (";", "{"):
            found.append((words, tuple(map(tuple, blocks))))
        if token["end"] == "{":
            blocks.append(words)
        if token["end"] == "}":
            blocks.pop()
        if token["end"]:
            words = []
        elif token.lastgroup:
            words.append(token[token.lastgroup])
    assert not blocks
    return found


def directives(text):
    """Every directive, whichever block it stands in."""
    return [words for words, _ in read_blocks(text)]


def directives_in(*block):
    """The directives of one block."""
    return [words for words, blocks in read_blocks(PROXY) if blocks and blocks[-1] == block]


def directive(name):
    """The arguments of a directive that is there once."""
    (found,) = [words[1:] for words in directives(PROXY) if words[0] == name]
    return found


def seconds(text):
    return float(re.fullmatch(r"([\d.]+)s", text)[1])


def bytes_of(text):
    return int(text[:-1]) << {"m": 20, "g": 30}[text[-1]]


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_can_change_nothing_and_take_no_more_than_its_share(name):
    service = SERVICES[name]
    assert service["read_only"] == "true"
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert bytes_of(service["mem_limit"]) > 0
    assert float(service["cpus"]) > 0
    assert int(service["pids_limit"]) > 0
    assert not {"privileged", "cap_add", "devices", "network_mode", "pid"} & service.keys()


def test_two_replicas_are_alike_and_only_the_proxy_is_reached_from_outside():
    assert list(REPLICAS) == ["chainrule-1", "chainrule-2"]
    assert REPLICAS["chainrule-1"] == REPLICAS["chainrule-2"]
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["proxy"]
    assert all(service["networks"] == ["inside"] for service in REPLICAS.values())
    assert COMPOSE["networks"]["inside"] == {"internal": "true"}
    assert SERVICES["proxy"]["ports"] == ["${PUBLISH:-127.0.0.1:8000}:8080"]


def test_a_replica_is_the_image_with_settings_that_are_settings():
    given = REPLICAS["chainrule-1"]["environment"]
    # It does not start without a token, and says why.
    assert re.fullmatch(r"\$\{CHAINRULE_TOKEN:\?[^}]+\}", given["CHAINRULE_TOKEN"])
    values = {name: re.sub(r"\$\{\w+:-\}", "", value) for name, value in given.items()}
    values |= {"CHAINRULE_TOKEN": "a-token-of-some-length"}
    settings = Settings(**{name.removeprefix("CHAINRULE_").lower(): value for name, value in values.items()})
    assert settings.allowed_hosts == ()
    assert settings.trusted_proxies == ("*",)
    # What the process itself takes, half a gibibyte, fits in beside.
    assert settings.max_memory_bytes + settings.max_kept_bytes + (512 << 20) <= bytes_of(
        REPLICAS["chainrule-1"]["mem_limit"]
    )
    assert seconds(REPLICAS["chainrule-1"]["stop_grace_period"]) >= 10


def test_the_proxy_is_pinned_not_root_and_waits_for_healthy_replicas():
    proxy = SERVICES["proxy"]
    assert re.fullmatch(r"nginx:1\.\d+-alpine", proxy["image"])
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", proxy["user"])
    assert proxy["depends_on"] == {name: {"condition": "service_healthy"} for name in REPLICAS}
    assert proxy["volumes"] == ["./deploy/nginx.conf:/etc/nginx/nginx.conf:ro"]
    assert directive("listen") == ["8080"]
    # All that it writes lies in the one folder that can be written to.
    assert [mount.partition(":")[0] for mount in proxy["tmpfs"]] == ["/tmp"]
    written = [words[1] for words in directives(PROXY) if words[0] == "pid" or words[0].endswith("temp_path")]
    assert len(written) == 6
    assert all(path.startswith("/tmp/") for path in written)


def test_the_proxy_knows_both_replicas_and_goes_to_the_other_where_one_is_down():
    port = environment_of()["CHAINRULE_PORT"]
    servers = [words[1:] for words in directives(PROXY) if words[0] == "server" and len(words) > 1]
    assert [each[0] for each in servers] == [f"{name}:{port}" for name in REPLICAS]
    for server in servers:
        assert "resolve" in server, "a replica made anew has another address"
        assert "max_fails=0" in server, "none is set aside while the other may be down"
    assert directive("resolver")[0] == "127.0.0.11"
    # POST too; and no status: a busy replica is not one that is down.
    assert set(directive("proxy_next_upstream")) == {"error", "timeout", "non_idempotent"}
    assert directive("proxy_next_upstream_tries") == [str(len(servers))]


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
    headers = {words[1]: words[2] for words in directives(PROXY) if words[0] == "proxy_set_header"}
    assert headers == {
        "Host": "$http_host",
        # What stands in front of the proxy is passed on, not overwritten: the cookie is Secure where TLS is.
        "X-Forwarded-For": "$proxy_add_x_forwarded_for",
        "X-Forwarded-Proto": "$forwarded_proto",
        "Upgrade": "$http_upgrade",
        "Connection": "$connection_upgrade",
    }
    assert directive("proxy_http_version") == ["1.1"]


def test_the_proxy_believes_of_a_scheme_only_what_is_one():
    schemes = dict(directives_in("map", "$http_x_forwarded_proto", "$forwarded_proto"))
    assert schemes == {"default": "$scheme", "http": "http", "https": "https"}
    # Of whomever it is sent, so it is said who may send it.
    assert "nothing else may reach this port" in " ".join(PROXY.split()).replace("# ", "")
    assert "only TLS in front reaches" in " ".join(COMPOSE_TEXT.split()).replace("# ", "")


def test_the_proxy_writes_down_no_token():
    form = " ".join(directive("log_format"))
    variables = set(re.findall(r"\$(\w+)", form))
    assert variables == {
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


def test_no_log_of_the_proxy_has_the_request_line():
    """What nginx logs of a request ends with the whole of it, at every level; only what it logs of itself does not."""
    logs = {blocks: words[1:] for words, blocks in read_blocks(PROXY) if words[0] == "error_log"}
    assert logs == {(): ["/dev/stderr", "warn"], (("http",),): ["/dev/null", "crit"]}


def test_what_the_proxy_says_itself_has_the_shape_and_the_headers_of_every_error():
    (own,) = {words[-1] for words in directives(PROXY) if words[0] == "error_page"}
    assert own.startswith("/"), "a request that cannot be read is led to no named location"
    own = directives_in("location", "=", own)
    assert ["internal"] in own
    assert ["default_type", "application/json"] in own
    headers = {words[1].lower(): words[2] for words in own if words[0] == "add_header"}
    assert all(words[3:] == ["always"] for words in own if words[0] == "add_header")
    assert headers == SECURITY_HEADERS | {"cache-control": "no-store", "retry-after": "$own_retry_after"}
    # Nowhere else: what replicas answer has them already.
    assert sum(words[0] == "add_header" for words in directives(PROXY)) == len(headers)
    (body,) = [words[2] for words in directives(PROXY) if words[0] == "return" and len(words) > 2]
    codes = dict(directives_in("map", "$status", "$own_code"))
    messages = dict(directives_in("map", "$status", "$own_message"))
    assert dict(directives_in("map", "$status", "$own_retry_after")).keys() == {"503"}
    for status in codes.keys() | messages.keys():
        code, message = codes.get(status, codes["default"]), messages.get(status, messages["default"])
        error = json.loads(body.replace("$own_code", code).replace("$own_message", message))["error"]
        assert error == {"code": code, "message": message}
    assert (codes["413"], codes["503"], codes["404"]) == ("body_too_large", "busy", "not_found")


def test_the_proxy_has_a_page_for_every_error_that_it_knows():
    pages = [words[1:-1] for words in directives(PROXY) if words[0] == "error_page"]
    covered = {status for statuses in pages for status in statuses if not status.startswith("=")}
    # nginx's own, but for those of TLS, authentication and limits, which are not configured; 494 is a large header.
    assert covered >= {"400", "404", "405", "408", "411", "413", "414", "494", "500", "501", "502", "503", "504", "505"}
    # Which status a client sees is said where it is another than nginx's.
    assert ["494", "=431"] in pages
    assert ["502", "503", "504", "=503"] in pages
    # And none of what replicas answer is replaced.
    assert not [words for words in directives(PROXY) if words[0] == "proxy_intercept_errors"]
