"""The viewport of the graph: natural size, fit, zoom and limits."""

from typing import Any

import pytest


def test_a_viewport_keeps_what_is_held_and_leaves_no_gaps(module: Any) -> None:
    script = """({ Viewport }, { room, extent, moves }) => {
        const view = new Viewport();
        view.room = room;
        view.show(extent, null);
        for (const [name, ...values] of moves) view[name](...values);
        return { x: view.x, y: view.y, scale: view.scale, camera: view.camera, overflows: view.overflows };
    }"""
    room = {"width": 800, "height": 500}

    def after(extent: dict[str, Any], *moves: list[Any]) -> dict[str, Any]:
        found: dict[str, Any] = module("view/viewport.js", script, {"room": room, "extent": extent, "moves": moves})
        return found

    small = {"width": 400, "height": 300, "natural": 400, "isElastic": False}
    large = {"width": 8000, "height": 1000, "natural": 8000, "isElastic": False}
    # A small drawing is shown in its natural size, a large one whole; both in the middle.
    assert after(small) == {
        "x": 200,
        "y": 100,
        "scale": 1,
        "camera": {"zoom": 1, "at": 0, "across": 0.5},
        "overflows": False,
    }
    begin = after(large)
    assert [begin["x"], begin["y"], begin["scale"]] == pytest.approx([0, 0, 0.5])
    assert begin["overflows"]
    all_of_it = ["look", {"zoom": 1, "at": 0.5, "across": 0.5}]
    fit = after(large, all_of_it)
    assert [fit["x"], fit["y"], fit["scale"]] == pytest.approx([0, (500 - 100) / 2, 0.1])
    assert not fit["overflows"]
    # Magnified around a point: what was at 600, 250 still is. No more than three times the natural size.
    near = after(large, all_of_it, ["magnifyAt", 1.5, 600, 250])
    assert near["scale"] == 1.5
    assert near["camera"]["zoom"] == pytest.approx(15)
    assert (600 - near["x"]) / 1.5 == pytest.approx(600 / 0.1)
    assert (250 - near["y"]) / 1.5 == pytest.approx((250 - 200) / 0.1)
    assert after(large, ["magnifyAt", 50, 0, 0])["scale"] == 3
    assert after(large, ["magnifyAt", 0.001, 0, 0])["scale"] == pytest.approx(0.1)
    # Any of it may be in the middle, and something of it always is.
    assert after(large, ["magnifyAt", 1, 0, 0], ["moveTo", 10_000, -9_000])["x"] == 400
    # A box that is held stays, whatever comes around it.
    hold = {"box": {"x": 3000, "y": 40, "width": 90, "height": 40}, "shareX": 0, "shareY": 0, "x": 123, "y": 45}
    held = after(small, ["show", large, hold])
    assert (held["x"] + 3000 * held["scale"], held["y"] + 40 * held["scale"]) == pytest.approx((123, 45))
    # A drawing that shrinks to fit leaves no gap at its ends.
    elastic = {"width": 1600, "height": 500, "natural": 4000, "isElastic": True}
    assert after(elastic, ["moveTo", 300, 80])["x"] == 0
    assert after(elastic, ["moveTo", -5000, 80])["x"] == -800
