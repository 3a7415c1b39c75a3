"""Secrets and folders of this machine do not get into what people share."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import chainrule
from chainrule.dump.wire import dump_trace
from chainrule.export.formats import TRACE_FORMATS
from chainrule.trace.privacy import MASK, SOURCES, masked, private, with_sources

# Made up for this test, in the forms of real ones; joined here, so that no scanner takes them for real.
PLANTED = {
    "amazon": "AKIA" + "IOSFODNN7EXAMPLE",
    "google": "AIza" + "SyD3x4mpl3K3yF0rT3st1ngPurp0s3sOn1y",
    "github": "ghp_" + "16C7e42F292c6912E7710c838347Ae178B4a",
    "huggingface": "hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeF12",
    "openai": "sk-" + "proj-Ab12Cd34Ef56Gh78Ij90Kl12",
    "slack": "xoxb-" + "123456789012-abcdefghijkl",
    "jwt": "eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
    "wandb": "0123456789abcdef" + "0123456789abcdef01234567",
    "password": "hunter2!",
    "database": "s3cr3t-p4ss",
    "private key": "-----BEGIN RSA " + "PRIVATE KEY-----",
    "random": "Zm9vYmFy" + "QmF6UXV4MTIzNDU2Nzg5MEFCQ0RFRmdoaWprbG1ub3A=",
}

CODE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 1)

    def forward(self, x):
        key = "{amazon}"; other = '{google}'
        headers = {{"Authorization": "Bearer {github}", "x": "{huggingface}"}}
        client = dict(api_key="{openai}", hook="{slack}", jwt="{jwt}")
        x = self.linear(x)  # {wandb}
        password = "{password}"; url = "postgres://ann:{database}@db.example/x"
        pem = '{private key}'; blob = b"{random}"
        if x.isnan().any():
            raise ValueError("cannot read {home}data/weights.bin with {openai}")
        return x.square().mean()
"""


@pytest.fixture
def net(tmp_path, monkeypatch):
    path = tmp_path / "secret_net.py"
    path.write_text(CODE.format(**PLANTED, home=f"{Path.home()}/"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "secret_net", raising=False)
    torch.manual_seed(0)
    return __import__("secret_net").Net()


def traced(net, x):
    with (
        pytest.raises(ValueError, match="cannot read") if x.isnan().any() else torch.enable_grad(),
        chainrule.record(net) as recording,
    ):
        net(x).backward()
    return recording.trace


@pytest.mark.parametrize("value", [1.0, float("nan")])
def test_no_export_holds_a_planted_secret_or_a_folder(net, value, tmp_path):
    trace = traced(net, torch.full((3, 2), value))
    assert "self.linear(x)" in trace.ops[0].source.text
    assert any("headers" in part.text for parts in trace.sources.values() for part in parts)
    for name, form in TRACE_FORMATS.items():
        written = form.write(trace, form.read({})).decode()
        for kind, secret in PLANTED.items():
            assert secret not in written, (name, kind)
        for folder in (f"{tmp_path}/", f"{Path.cwd()}/", f"{Path.home()}/"):
            assert folder not in written, (name, folder)
    assert trace.error is None or private(trace.error.message) == (
        f"ValueError: cannot read …/data/weights.bin with {MASK}"
    )
    # A second time changes nothing.
    assert dump_trace(chainrule.load(dump_trace(trace))) == dump_trace(trace)


@pytest.mark.parametrize(
    "line",
    [
        'rearrange(tokens, "b n d -> b d n"); pool(tokens, "mean"); gather(x, token, "last")',
        'token_mixer: str = "attention2"; tokenizer_name = "gpt2-large"; author = "Jane Doe"; token = "cls_token"',
        "x = self.BatchNorm2dConv2dReLU6MaxPool2dAdaptiveAvgPool2d(x); hf_pretrained_model_name_or_path = None",
        'load("facebook/wav2vec2-large-xlsr-53-German-v1B2", "ckpt/resnet50_IMAGENET1K_V2-11ad3fa6.pth")',
        "password = args.password; token: str | None = None; auth = (user, password)  # password: see the readme",
        "# a task-specific-hyperparameter-of-the-model, disk-usage-statistics-of-the-job",
        'tokenizer = AutoTokenizer.from_pretrained("gpt2", pad_token="<pad>", eos_token="<|endoftext|>")',
        "token = tokens[0]; password = getpass(); secret = os.environ[name]",
        'x = F.interpolate(x, mode="bilinear", align_corners=False)',
        "self.encoder_layers_with_normalization_before_attention = nn.ModuleList()",
        "class Conv2dNormActivationWithSqueezeExcitation(nn.Module):",
        'api_key = f"{prefix}-{number}"',
        "out = torch.einsum('bhqd,bhkd->bhqk', query, key) / 10000000000000000000000000000000000000",
        "# https://github.com/pytorch/pytorch/blob/main/torch/nn/modules/activation.py",
    ],
)
def test_code_without_secrets_is_shown_as_it_is(line):
    assert masked(line) == line


@pytest.mark.parametrize(
    "line",
    [
        'password: str | None = "hunter22"',
        "password: Optional[str] = 'hunter22'",
        'parser.add_argument("--password", default="hunter22")',
        'login("me", "hunter22")',
        'session.get(url, auth=("me", "hunter22"))',
        'wandb.login(key="hunter22")',
        'passwords = ["hunter22"]',
        'password = ("hunter22")',
        'TOKEN = """hunter22"""',
        'API_KEY="a\\"hunter22"',
        "# password: hunter22",
        'get("https://example.org/?token=hunter22")',
        "signing_key='hunter22', encryption_key='x'",
        "pw = 'hunter22'",
        'os.environ["WANDB_API_KEY"] = "hunter22"',
        'password = "$hunter22"',
        'url = "postgres://me:p@hunter22@host/x"',
        'open("/home/hunter22/notes.txt")',
    ],
)
def test_a_secret_is_masked_in_every_form_of_code(line):
    assert "hunter22" not in masked(line)


@pytest.mark.long
def test_a_long_line_is_masked_in_time_that_grows_with_its_length():
    # Each would take hours with an expression that goes back over what it has read.
    for text in ("a1B2" * 100_000, "token" * 100_000, "/a" * 100_000, "eyJ" * 100_000, "password = '" * 50_000):
        masked.__wrapped__(text)
        private(text)


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("/home/ann/net.py:12: it failed", "…/net.py:12: it failed"),
        ("in C:\\Users\\ann\\net.py", "in …/net.py"),
        ("see https://example.org/a/b/c and a / b / c, 1/2/3", "see https://example.org/a/b/c and a / b / c, 1/2/3"),
        (f"{os.getcwd()}/tests/x.py", "…/tests/x.py"),
        ("…/net.py", "…/net.py"),
    ],
)
def test_a_message_names_files_without_their_folders(message, shown):
    assert private(message) == shown
    assert private(shown) == shown


@pytest.mark.long
@pytest.mark.parametrize("environment", [{"HOME": "/"}, {"HOME": ""}])
def test_the_root_and_a_folder_that_is_gone_are_no_folders(environment, tmp_path):
    code = (
        "import os, sys\n"
        "from chainrule.trace.privacy import masked, private\n"
        "os.chdir(sys.argv[1]); os.rmdir(sys.argv[1]) if sys.argv[1] != '/' else None\n"
        "print(masked('x = a / b'), private('1/2 of N/A; see https://x.org/y, /home/ann/net.py'))"
    )
    for folder in ("/", str(tmp_path / "gone")):
        Path(folder).mkdir(exist_ok=True)
        done = subprocess.run(
            [sys.executable, "-c", code, folder],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout == "x = a / b 1/2 of N/A; see https://x.org/y, …/net.py\n", done.stderr


@pytest.mark.parametrize("sources", SOURCES)
def test_a_trace_holds_as_much_source_code_as_was_asked_for(sources):
    net = nn.Linear(2, 1)
    with chainrule.record(net, sources=sources) as recording:
        net(torch.ones(3, 2)).mean().backward()
    trace = recording.trace
    assert (trace.ops[0].source is None) is (sources == "none")
    assert (trace.sources != {}) is (sources == "context")
    with chainrule.record(net) as recording:
        net(torch.ones(3, 2)).mean().backward()
    less = with_sources(recording.trace, sources)
    assert [op.id for op in less.ops] == [op.id for op in trace.ops]
    assert [op.source is None for op in less.ops] == [op.source is None for op in trace.ops]
    assert ("chainrule.record(net) as recording" in dump_trace(less).decode()) is (sources == "context")


def test_other_sources_are_an_error():
    with pytest.raises(ValueError, match="sources: 'all' is not one of none, line, context"):
        chainrule.record(sources="all")
