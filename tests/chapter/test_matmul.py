import pytest
import torch
from chapter_answers import asking

from chainrule.chapter import matmul
from chainrule.chapter.matmul import LIMIT_SECONDS, PAGE, draw, estimate, race, rounding_bound, share_limit
from chainrule.errors import InputError
from chainrule.foundations.matmul import RUNGS

ask = asking(PAGE)


def slow_rung(monkeypatch, name, *, seconds_per_multiplication):
    """Makes a rung cost a known time, on a clock that only its multiplications move."""
    now = [0.0]

    def rung(a, b):
        now[0] += a.shape[0] * a.shape[1] * b.shape[1] * seconds_per_multiplication
        return a @ b

    monkeypatch.setitem(RUNGS, name, rung)
    monkeypatch.setattr(matmul.time, "perf_counter", lambda: now[0])


@pytest.mark.parametrize(("m", "k", "n"), [(5, 7, 3), (1, 1, 1)])
def test_all_rungs_give_the_float64_product(m, k, n):
    answer = ask(m=str(m), k=str(k), n=str(n))
    a, b = draw(m, k, n, 42)
    product = torch.matmul(a.double(), b.double())
    assert [row["name"] for row in answer["rungs"]] == list(RUNGS)
    for row in answer["rungs"]:
        difference = (RUNGS[row["name"]](a, b).double() - product).abs().max().item()
        assert row["max_difference"] == difference <= row["rounding_bound"]
        assert row["equal"] is True
        assert row["refused"] is None
        assert row["repeats"] >= 1
        assert row["speedup"] == pytest.approx(answer["rungs"][0]["seconds"] / row["seconds"])
    assert answer["rungs"][0]["speedup"] == 1
    assert answer["multiplications"] == m * k * n


def test_matrices_are_drawn_from_the_seed_alone():
    state = torch.get_rng_state()
    a, b = draw(3, 4, 5, 7)
    again_a, wider_b = draw(3, 4, 6, 7)
    assert torch.equal(a, again_a)
    assert not torch.equal(b, wider_b[:, :5])
    assert not torch.equal(a, draw(3, 4, 5, 8)[0])
    assert torch.equal(state, torch.get_rng_state())


def test_a_wrong_product_is_not_equal(monkeypatch):
    a, b = draw(5, 784, 10, 0)
    product, bound = a.double() @ b.double(), rounding_bound(a, b)
    monkeypatch.setitem(RUNGS, "@", lambda a, b: a[:, 1:] @ b[1:])  # one of 784 products is missing
    row = race("@", a, b, product, bound, expected=0.0, limit=1.0, budget=0.0)
    assert row["equal"] is False
    assert row["max_difference"] == pytest.approx(torch.outer(a[:, 0], b[0]).abs().max().item(), rel=1e-3)


def test_rounding_stays_within_its_bound():
    # The worst case: every factor rounds the same way.
    a = torch.full((1, 1000), 0.1)
    b = torch.full((1000, 1), 0.1)
    difference = (RUNGS["loops"](a, b).double() - a.double() @ b.double()).abs()
    assert 0 < difference.item() <= rounding_bound(a, b).item()


def test_slow_loops_are_refused_and_the_other_rungs_run():
    rows = {row["name"]: row for row in ask(m="1024", k="1024", n="8")["rungs"]}
    refused = rows["loops"]["refused"]
    assert refused["estimate_seconds"] > refused["limit_seconds"]
    assert refused["limit_seconds"] == LIMIT_SECONDS == 2  # as it would be alone
    assert [rows["loops"][key] for key in ("seconds", "speedup", "max_difference", "equal")] == [None] * 4
    assert rows["@"]["equal"] is True
    assert rows["@"]["speedup"] > 1  # over what the loops are estimated to take


@pytest.mark.parametrize("name", ["loops", "elementwise", "broadcasting"])
def test_an_estimate_scales_a_piece_to_the_whole(monkeypatch, name):
    slow_rung(monkeypatch, name, seconds_per_multiplication=1e-6)
    a, b = draw(300, 400, 500, 0)
    assert estimate(name, a, b) == pytest.approx(60.0)


def test_the_rungs_of_a_request_share_its_limit(monkeypatch):
    slow_rung(monkeypatch, "loops", seconds_per_multiplication=1.5 / (50 * 64 * 20))
    slow = RUNGS["loops"]
    monkeypatch.setitem(RUNGS, "elementwise", lambda a, b: (slow(a[: len(a) // 2], b), a @ b)[1])
    sizes = {"m": "50", "k": "64", "n": "20"}
    monkeypatch.setattr(matmul, "estimate", lambda name, *_: {"loops": 1.5, "elementwise": 0.75}[name])
    loops, elementwise = ask(**sizes, rungs="loops,elementwise")["rungs"]
    assert elementwise["seconds"] == pytest.approx(0.75)
    assert loops["refused"] == {"estimate_seconds": 1.5, "limit_seconds": 1.25}
    (alone,) = ask(**sizes, rungs="loops")["rungs"]
    assert alone["seconds"] == pytest.approx(1.5)
    assert alone["refused"] is None


def test_the_limit_is_shared_from_the_fastest_on():
    assert share_limit({"loops": 1.75, "elementwise": 1.5, "@": 0.25}) == {"@": 2.0, "elementwise": 1.75, "loops": 0.25}
    assert share_limit({"loops": 9.0, "elementwise": 1.5}) == {"elementwise": 2.0, "loops": 2.0}


def test_a_fast_rung_is_repeated_and_its_first_run_does_not_count(monkeypatch):
    slow_rung(monkeypatch, "@", seconds_per_multiplication=2**-10)
    a, b = draw(2, 2, 2, 0)
    seconds, repeats, _ = matmul.measure(lambda: RUNGS["@"](a, b), 8 * 2**-7)
    assert (seconds, repeats) == (2**-7, 7)


def test_some_of_the_rungs():
    answer = ask(m="2", k="2", n="2", rungs="@, einsum")
    assert [row["name"] for row in answer["rungs"]] == ["einsum", "@"]
    assert answer["baseline"]["measured"] is False


@pytest.mark.parametrize(("rungs", "message"), [("loops,numpy", "unknown name 'numpy'"), ("", "a name is missing")])
def test_bad_input_names_its_field(rungs, message):
    with pytest.raises(InputError, match=message) as raised:
        ask(rungs=rungs)
    assert raised.value.field == "rungs"
