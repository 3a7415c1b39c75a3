"""The output of a notebook's cell: curves of the run, which the training draws and which break nothing."""

import base64
import math
import re
from xml.etree import ElementTree

import IPython.display
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (its usual name)
from notebooks import execute
from torch import nn

import chainrule
from chainrule.history.picture import to_svg
from chainrule.history.summary import Summary
from chainrule.watching import live

SVG = "{http://www.w3.org/2000/svg}"


def picture_of(html):
    """The SVG in an output's image."""
    assert html.isascii()
    assert not re.search(r"<script|<svg|https?:", html)
    return ElementTree.fromstring(base64.b64decode(re.search(r'src="data:image/svg\+xml;base64,([^"]*)"', html)[1]))


def titles(picture):
    return [text.text for text in picture.iter(f"{SVG}text") if text.get("class") == "n"]


ALL = ["loss", "gradient norm", "update : weight, smallest to largest"]


class Notebook:
    """Its outputs, and a clock that each reading moves on by `tick` seconds."""

    def __init__(self):
        self.outputs, self.updates, self.now, self.tick, self.fails = [], 0, 0.0, 0.0, False

    def display(self, data, raw, display_id):
        assert (raw, display_id) == (True, True)
        self.outputs.append(data)
        return self

    def update(self, data, raw):
        assert raw
        if self.fails:
            raise OSError("no connection")
        self.outputs[-1] = data
        self.updates += 1

    def monotonic(self):
        self.now += self.tick
        return self.now


@pytest.fixture
def notebook(monkeypatch):
    made = Notebook()
    monkeypatch.setattr("chainrule.watching.watch.in_notebook", lambda: True)
    monkeypatch.setattr(IPython.display, "display", made.display)
    monkeypatch.setattr(live.time, "monotonic", made.monotonic)
    return made


def train(steps=40, watching=True, fails_at=None, **options):
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.2), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def loop(watch=None):
        for step in range(steps):
            if step == fails_at:
                raise RuntimeError("no <more> data")
            optimizer.zero_grad()
            loss = F.mse_loss(net(torch.randn(6, 4)), torch.randn(6, 1))
            loss.backward()
            if watch:
                watch.loss(loss)
            optimizer.step()

    if watching:
        with chainrule.watch(net, optimizer, every=2, **options) as watch:
            loop(watch)
    else:
        loop()
    return [*net.parameters(), torch.get_rng_state()]


def test_a_training_in_a_notebook_is_the_same_training(notebook):
    notebook.tick = 1.0
    assert all(torch.equal(a, b) for a, b in zip(train(), train(watching=False), strict=True))
    (output,) = notebook.outputs
    assert output["text/plain"] == "<run Sequential>"
    assert re.search("<p>Sequential: step 39, loss .*, lr 0.1, gradient norm .*, complete</p>", output["text/html"])
    assert titles(picture_of(output["text/html"])) == ALL
    assert notebook.updates >= 20


def test_a_second_has_one_picture(notebook):
    notebook.tick = 0.25
    train(steps=40)
    # Each picture but the first and the last comes after four readings of the clock; one more notes its time.
    assert notebook.updates == 40 // 4 + 1


def test_a_picture_that_fails_is_the_last_and_one_warning(notebook, caplog):
    notebook.tick, notebook.fails = 1.0, True
    assert all(torch.equal(a, b) for a, b in zip(train(), train(watching=False), strict=True))
    assert caplog.messages == ["Sequential: the notebook cannot show the run: no connection"]


def test_the_last_picture_says_how_the_training_ended(notebook, tmp_path):
    with pytest.raises(RuntimeError):
        train(fails_at=3, keep=tmp_path / "first.run")
    (output,) = notebook.outputs
    assert "<p>first: step 2, " in output["text/html"]
    assert "RuntimeError: no &lt;more&gt; data</p>" in output["text/html"]


def test_a_run_shows_itself_as_the_training_did(notebook, tmp_path):
    train(keep=tmp_path / "first.run")
    assert chainrule.runs(tmp_path)[0]._repr_html_() == notebook.outputs[0]["text/html"]


def test_a_picture_of_what_is_not_finite():
    summary = Summary()
    for step, loss in enumerate([3.0, 2.0, math.nan, math.inf, 1.0]):
        summary.add_step(step, loss, None, None, None)
    summary.events = [(2, "nonfinite", "the loss is NaN")]
    picture = ElementTree.fromstring(to_svg(summary))
    assert titles(picture) == ["loss"]
    curve, crosses = (each.get("d") for each in list(picture.iter(f"{SVG}path"))[2:])
    assert curve == "M52.0 26.0h0L111.0 76.0M288.0 126.0h0"
    assert re.findall("M[0-9.]+", crosses) == ["M168.0", "M227.0"]


def test_a_picture_of_nothing():
    assert titles(ElementTree.fromstring(to_svg(Summary()))) == []


CELLS = (
    """
import chainrule, torch
from torch import nn
from chainrule.watching import live
live.SECONDS = 0  # a picture per step
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
with chainrule.watch(net, optimizer, every=1, keep="first.run") as watch:
    print("begins")
    for step in range(12):
        optimizer.zero_grad()
        loss = net(torch.randn(6, 4)).square().mean()
        loss.backward()
        watch.loss(loss)
        optimizer.step()
""",
    "chainrule.runs('first.run')[0]",
)


@pytest.mark.long
def test_a_real_kernel(tmp_path):
    (shown, *printed), (repeated,) = execute(CELLS, tmp_path)
    assert shown["output_type"] == "display_data"
    assert [each["text"] for each in printed] == ["begins\n"], "and no other output"
    html = shown["data"]["text/html"]
    assert "<p>first: step 11, loss " in html
    assert ", complete</p>" in html
    assert titles(picture_of(html)) == ALL
    assert repeated["output_type"] == "execute_result"
    assert repeated["data"]["text/html"] == html
