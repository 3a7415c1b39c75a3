"""The programs in the page: one is chosen, what it does not use is greyed, its graph is drawn, and back to the net."""

import pytest
from playwright.sync_api import expect
from waiting import expect_when_idle

from chainrule.spec import ModelSpec
from chainrule.spec.keys import KEY_BY_NAME, keys_of
from chainrule.spec.programs import PROGRAMS

PYTHON = [name for name in PROGRAMS if name not in ("mlp", "linear_cpp")]
OWN = ("program", "rung", "constant")


def choose(explorer, program):
    """Choose a program in the panel and wait until its graph is on the screen."""
    explorer.page.select_option("#spec-program", program)
    expect_when_idle(explorer.page, "(query) => location.search === query", f"?program={program}")


def states(page):
    """For every control: whether it is disabled, whether it is shown, and its title."""
    return page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll("spec-controls .field")].map((field) => {
            const control = field.querySelector("[id^=spec-]");
            return [field.dataset.key, [control.disabled, field.hidden, control.title]];
        }))"""
    )


@pytest.mark.long
def test_each_program_is_drawn_with_what_it_does_not_use_greyed(explorer):
    page = explorer.open().page
    for program in PYTHON:
        choose(explorer, program)
        dump = explorer.dump()
        assert dump["spec"] == ModelSpec(program=program).as_dict()
        names = {tensor["name"] for tensor in dump["tensors"]}
        drawn = set(page.evaluate("[...document.querySelectorAll('graph-view .box')].map((box) => box.dataset.id)"))
        assert {name for name in ("x", "a", "b", "w", "c", "out", "loss") if name in names} <= drawn
        off = {name for name, (disabled, _, _) in states(page).items() if disabled}
        assert off - {"bias_std"} == set(KEY_BY_NAME) - set(keys_of(program)) - {"bias_std", "step"}
        for name, (_, hidden, title) in states(page).items():
            unused = name not in keys_of(program)
            assert hidden == (unused and name in OWN)
            assert (title == f"not used by {program}") == unused
        expect(page.locator("spec-controls .program-doc a")).to_have_attribute("href", PROGRAMS[program].page)
        expect(page.locator("diagnosis-list .state")).to_have_text(f"The program {program} has no layers.")
        expect(page.locator("layer-profile")).to_be_hidden()


@pytest.mark.long
def test_a_program_is_changed_left_and_come_back_to(explorer):
    page = explorer.open("/?seed=7&activation=tanh#level=all").page
    choose_query = "(query) => location.search === query"
    page.select_option("#spec-program", "matmul")
    # The seed means the same everywhere; the activation nothing to a product.
    expect_when_idle(page, choose_query, "?program=matmul&seed=7")
    page.select_option("#spec-rung", "loops")
    expect_when_idle(page, choose_query, "?program=matmul&rung=loops&seed=7")
    ops = explorer.dump()["ops"]
    expect(page.locator("inspector-panel")).to_contain_text(f"{sum(op['phase'] == 'forward' for op in ops)} ops")

    # An op, its source line.
    op = next(op for op in ops if op["name"] == "mul")
    page.evaluate("(id) => document.querySelector('graph-view').dispatchEvent("
                  "new CustomEvent('box-select', { detail: { id }, bubbles: true }))", op["id"])  # fmt: skip
    expect(page.locator("inspector-panel")).to_contain_text("c[i, j] += a[i, k] * b[k, j]")

    # Too large: said at the rung, the picture stays, and so does the address.
    page.locator("spec-controls .more summary").click()
    page.fill("#spec-batch", "1000")
    page.press("#spec-batch", "Enter")
    expect(page.locator("#spec-rung-note")).to_contain_text("6000 steps")
    assert "batch" not in page.evaluate("location.search")
    page.fill("#spec-batch", "3")
    page.press("#spec-batch", "Enter")
    expect_when_idle(page, choose_query, "?program=matmul&rung=loops&batch=3&seed=7")
    expect(page.locator("#spec-rung-note")).to_have_text("")

    page.get_by_role("button", name="Chapter", exact=True).click()
    expect_when_idle(page, choose_query, "?seed=7")
    expect(page.locator("#spec-program")).to_have_value("mlp")
    expect(page.locator("layer-profile")).to_be_visible()
    expect(page.locator("#spec-scale")).to_be_enabled()
    expect(page.locator("#spec-rung")).to_be_hidden()
    assert not states(page)["activation"][0]

    page.go_back()
    expect_when_idle(page, choose_query, "?program=matmul&rung=loops&batch=3&seed=7")
    expect(page.locator("#spec-rung")).to_have_value("loops")
    expect(page.locator("#spec-activation")).to_be_disabled()
    page.reload()
    page.wait_for_selector("run-status[data-seq]")
    expect(page.locator("#spec-batch")).to_have_value("3")
    expect(page.locator("#share a[data-trace=json]")).to_have_attribute(
        "href", "/api/v1/trace.json?program=matmul&rung=loops&batch=3&seed=7"
    )
