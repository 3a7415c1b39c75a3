"""The table of the load battery's figures."""

from load_table import ROWS, table, worst


def test_worst_is_the_least_where_more_is_better():
    kept = [{"row": "a", "name": f"n{value}", "value": value, "goal": ">= 1", "met": True} for value in (3, 2, 5)]
    assert worst(kept, "a", "n.*")["value"] == 2
    assert worst([{**each, "goal": "<= 9"} for each in kept], "a", "n.*")["value"] == 5
    assert worst(kept, "b", "n.*") is None


def test_the_table_shows_the_worst_figure_and_what_missed_its_goal():
    sliders = "30 × fifty, a: slowest client"
    kept = [
        {"row": "sliders", "name": sliders, "value": 7.0, "goal": ">= 0.8", "met": True},
        {"row": "sliders", "name": sliders, "value": 0.4, "goal": ">= 0.8", "met": False},
        {"row": "aborts", "name": "failed", "value": 2, "goal": "== 0", "met": False},
    ]
    lines = dict(zip(ROWS, table(kept).splitlines()[2:], strict=True))
    assert "0.4 (**missed**)" in lines["sliders"]
    assert lines["aborts"].endswith("; failed (**missed**) |")
    assert "not measured" in lines["fuzz"]
