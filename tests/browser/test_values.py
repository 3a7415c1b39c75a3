"""The values of tensors with at most 16 elements: in the box and in the inspector, at every scale and every step."""

import json
import math

import pytest
from playwright.sync_api import expect
from test_motion import drag

OUTSIDE = """() => [...document.querySelectorAll("graph-view .box:has(.numbers)")].filter((box) => {
    const [frame, numbers] = [".frame", ".numbers"].map((part) => box.querySelector(part).getBBox());
    return numbers.x < frame.x || numbers.x + numbers.width > frame.x + frame.width
        || numbers.y < frame.y || numbers.y + numbers.height > frame.y + frame.height + 2;
}).map((box) => box.dataset.id)"""

PAINTED = """(name) => {
    const canvas = document.querySelector("graph-view .layer canvas:not(.ground)");
    const box = document.querySelector(`graph-view .box[data-id="${name}"] .frame`).getBoundingClientRect();
    const { left, top, width } = canvas.getBoundingClientRect();
    const ratio = canvas.width / width;
    const { data } = canvas.getContext("2d").getImageData(
        (box.x - left) * ratio, (box.y - top) * ratio, box.width * ratio, box.height * ratio);
    return data.some((part) => part > 0);
}"""


def read(texts):
    return [float(text.replace("−", "-").replace("∞", "inf")) for text in texts]


def in_box(page, name):
    return read(page.locator(f'graph-view .box[data-id="{name}"] .numbers tspan').all_text_contents())


def in_inspector(page):
    return [read(row.locator("td").all_text_contents()) for row in page.locator(".small-values tr").all()]


def values_of(dump):
    names = {tensor["id"]: tensor["name"] for tensor in dump["tensors"]}
    return {names[tensor]: [float(value) for value in values] for tensor, values in dump["values"].items()}


@pytest.mark.parametrize(
    ("query", "name", "columns"),
    [
        ("program=neuron", "w", 3),
        ("program=matmul&rung=@&widths=4,2&batch=3", "b", 2),
        ("program=exp&widths=7&batch=1", "out", 7),
    ],
)
def test_a_box_and_the_inspector_show_the_values_of_the_dump(explorer, query, name, columns):
    explorer.expected = ["willReadFrequently"]
    page = explorer.open(f"/?{query}#select={name}").page
    values = values_of(explorer.dump())
    shown = {each for each, numbers in values.items() if len(numbers) > 1}
    assert {name, f"{name}.g"} <= shown
    for each in shown & explorer.boxes().keys():
        # At least one digit is shown.
        assert in_box(page, each) == pytest.approx(values[each], rel=0.5, abs=1e-12), each
        assert not page.evaluate(PAINTED, each)
    assert page.evaluate(OUTSIDE) == []
    rows = in_inspector(page)
    assert {len(row) for row in rows} == {columns}
    assert [value for row in rows for value in row] == pytest.approx(values[name], rel=1e-5)
    assert explorer.figure("loss") != ""


@pytest.mark.long
def test_the_values_follow_the_scale(explorer):
    page = explorer.open("/?program=neuron#select=w").page
    before = values_of(explorer.dump())
    assert in_box(page, "w") == pytest.approx(before["w"], rel=6e-3)
    for scale in (1.7, 0.5):
        drag(page, scale)
        wanted = [scale * value for value in before["w"]]
        assert in_box(page, "w") == pytest.approx(wanted, rel=6e-3)
        assert in_inspector(page)[0] == pytest.approx(wanted, rel=1e-5)
        assert in_box(page, "x") == pytest.approx(before["x"], rel=6e-3)
    label = page.locator('graph-view .box[data-id="w"]').get_attribute("aria-label")
    assert f"values {', '.join(page.locator('graph-view .box[data-id=w] tspan').all_text_contents())}, mean" in label


@pytest.mark.long
def test_values_that_are_not_finite_are_told_apart(explorer):
    query = "widths=4,4,3,1&batch=2&dtype=float16&scale=10000"
    page = explorer.open(f"/?{query}").page
    kinds = set()
    for name, values in values_of(explorer.dump()).items():
        shown = in_box(page, name) if name in explorer.boxes() else []
        if shown:
            assert [value if math.isinf(value) else math.isnan(value) for value in shown] == [
                value if math.isinf(value) else math.isnan(value) for value in values
            ]
            kinds |= {str(value) for value in values}
    assert {"inf", "-inf"} <= kinds


@pytest.mark.long
def test_in_the_steps_view_values_appear_at_their_step(explorer):
    explorer.open("/?program=matmul&rung=@#show=steps&step=0")
    page = explorer.page

    def filled():
        return {name for name in ("a", "b", "c", "c.g", "a.g") if in_box(page, name)}

    assert filled() == {"a", "b", "c"}
    page.locator("steps-view").get_by_role("slider", name="Step").focus()
    page.keyboard.press("End")
    explorer.idle()
    assert filled() == {"a", "b", "c", "c.g", "a.g"}


@pytest.mark.long
def test_the_values_of_an_opened_dump_are_shown(explorer, tmp_path):
    dump = explorer.dump("program=matmul&rung=@") | {"spec": None}
    values = values_of(dump)
    path = tmp_path / "matmul.json"
    path.write_text(json.dumps(dump))
    page = explorer.open().page
    page.set_input_files("dump-opener input[type=file]", path)
    expect(page.locator("body")).to_have_attribute("data-source", "dump")
    explorer.idle()
    page.locator('graph-view .box[data-id="a"]').click()
    explorer.idle()
    assert in_box(page, "a") == pytest.approx(values["a"], rel=0.5)
    assert [value for row in in_inspector(page) for value in row] == pytest.approx(values["a"], rel=1e-5)


@pytest.mark.long
def test_values_wait_for_the_guess(explorer):
    page = explorer.open("/?program=neuron#select=w&predict=w.std").page
    assert in_box(page, "w") == []
    assert page.locator(".small-values td").all_text_contents() == ["?"] * 3
    assert in_box(page, "x") != []
