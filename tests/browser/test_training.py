"""The training view: its steps, curves, maps and pictures are those of the server's run."""

import json
from contextlib import contextmanager
from urllib.request import urlopen

import pytest
from playwright.sync_api import expect
from waiting import idle

MOONS = "widths=2,12,2&loss=cross_entropy&data=moons&lr=0.5"
DIGITS = "widths=64,20,10&loss=cross_entropy&data=digits&lr=0.2"


def get(server_url, path):
    with urlopen(f"{server_url}{path}") as answer:
        return json.load(answer)


def shown_step(page):
    return int(page.locator("training-bar input[type=text]").input_value())


def wait_for_step(page, condition, step):
    """Wait until the step that is shown meets the condition, `shown >= step`."""
    page.evaluate(
        f"""(step) => new Promise((resolve) => {{
            const look = () => {{
                const shown = Number(document.querySelector("training-bar input[type=text]").value);
                if ({condition}) resolve();
                else requestAnimationFrame(look);
            }};
            look();
        }})""",
        step,
    )


def play_until(page, step):
    """Play to this step or beyond, and pause."""
    page.locator("training-bar .play").click()
    wait_for_step(page, "shown >= step", step)
    page.locator("training-bar .play").click()
    idle(page)


@contextmanager
def restart(page):
    """What is done in it has the playing training begin anew: this waits until it has."""
    # Looks before: a training that plays soon passes the step that it had.
    page.evaluate(
        """() => {
            const field = document.querySelector("training-bar input[type=text]");
            let last = Number(field.value);
            globalThis.restart = new Promise((resolve) => {
                const look = () => {
                    const shown = Number(field.value);
                    if (shown < last) return resolve();
                    last = shown;
                    requestAnimationFrame(look);
                };
                look();
            });
        }"""
    )
    yield
    page.evaluate("() => globalThis.restart")


def words(page, name):
    return page.get_by_role("img", name=name).get_attribute("aria-label")


@pytest.mark.long
def test_a_played_step_is_the_server_s_and_every_view_shows_it(explorer, server_url):
    page = explorer.open("/#show=training").page
    expect(page.locator("training-view .hint")).to_be_visible()
    play_until(page, 12)
    step = shown_step(page)
    assert f"step={step}#show=training" in page.url
    run = get(server_url, f"/api/v1/run.json?step={step}")
    loss = f"{run['batch'][-1]['loss']:#.3g}"
    assert f"Loss {loss} at step {step}, 2.37 at step 0." == words(page, "Loss ")
    expect(page.locator("run-status")).to_contain_text(loss)
    ratios = [
        update / weight
        for update, weight in zip(run["rows"]["update_norms"][-1], run["rows"]["weight_norms"][-1], strict=True)
    ]
    name = "Update : weight of the last step, over the layers"
    assert words(page, name) == f"{name}: from {min(ratios):#.3g} to {max(ratios):#.3g}."
    assert f"2 layers by {step + 1} steps" in words(page, "Std of the activation, ")
    page.get_by_role("button", name="Graph", exact=True).click()
    idle(page)
    expect(page.locator("training-bar")).to_be_visible()
    std = run["layers"]["activation"]["std"][-1][0]
    expect(page.locator("inspector-panel")).to_contain_text(f"{std:.3g}")


def test_a_link_names_a_step_and_shows_the_curve_that_led_there(explorer):
    page = explorer.open(f"/?{MOONS}&step=30#show=training&over=gradient_std").page
    assert shown_step(page) == 30
    expect(page.locator("training-bar .scores")).to_contain_text("correct · held out")
    assert "2 layers by 31 steps" in words(page, "Std of the activation's gradient")
    assert words(page, "Accuracy ").endswith("at step 30.")
    page.locator("training-bar").get_by_role("button", name="Step back").click()
    idle(page)
    assert shown_step(page) == 29
    assert "step=29" in page.url
    page.locator("training-bar input[type=text]").fill("3")
    page.locator("training-bar input[type=text]").press("Enter")
    idle(page)
    assert "step=3#" in page.url
    page.go_back()
    idle(page)
    assert shown_step(page) == 29, "also while the box has the focus"
    chart = page.get_by_role("img", name="Loss ").bounding_box()
    page.mouse.click(chart["x"] + chart["width"] - 11, chart["y"] + 40)
    idle(page)
    assert shown_step(page) == 30


def test_a_change_while_it_plays_begins_anew_beside_the_old_curve(explorer):
    page = explorer.open(f"/?{MOONS}#show=training").page
    ghost = page.locator("training-view .keys .ghost")
    expect(ghost).to_be_hidden()
    page.locator("training-bar .play").click()
    wait_for_step(page, "shown >= step", 20)
    with restart(page):
        page.locator("#spec-init").select_option("lecun_normal")
    expect(ghost).to_be_visible()
    page.locator("training-bar .play").click()
    idle(page)
    assert "init=lecun_normal" in page.url


def test_an_event_stands_under_the_curve_and_leads_to_its_step(explorer, server_url):
    spec = "widths=2,20x2,2&loss=cross_entropy&data=spirals"
    page = explorer.open(f"/?{spec}&lr=30&step=12#show=training").page
    (event,) = get(server_url, f"/api/v1/run.json?{spec}&lr=30&step=12")["events"]
    events = page.locator("training-view .events")
    expect(events).to_have_text(f"Step {event['step']}: {event['text']}")
    events.get_by_role("button").click()
    idle(page)
    assert shown_step(page) == event["step"]
    page.goto(f"{server_url}/?{spec}&lr=0.1&step=12#show=training")
    idle(page)
    expect(events).to_be_hidden()


def test_the_curve_before_a_drag_stays_while_it_plays(explorer):
    page = explorer.open(f"/?{MOONS}#show=training").page
    page.locator("training-bar .play").click()
    wait_for_step(page, "shown >= step", 24)
    slider = page.get_by_role("slider", name="Init scale").bounding_box()
    x, y = slider["x"] + slider["width"] / 2, slider["y"] + slider["height"] / 2
    page.mouse.move(x, y)
    with restart(page):
        page.mouse.down()
        page.mouse.move(x + 20, y)
    for move in range(2, 5):
        wait_for_step(page, "shown >= step", 8)
        with restart(page):
            page.mouse.move(x + 20 * move, y)
    wait_for_step(page, "shown >= step", 8)
    page.mouse.up()
    assert shown_step(page) >= 8, "to release the slider changes nothing"
    page.locator("training-bar .play").click()
    idle(page)
    played = shown_step(page)
    chart = page.get_by_role("img", name="Loss ").bounding_box()
    page.mouse.click(chart["x"] + chart["width"] - 11, chart["y"] + 40)
    idle(page)
    assert shown_step(page) >= 24, f"the axis ends with the ghost, not with the {played} steps of the new training"


@pytest.mark.long
def test_the_ghost_is_the_curve_before_a_quick_drag_and_before_going_back(explorer):
    page = explorer.open("/?widths=2,16,2&loss=cross_entropy&data=moons&lr=0.1&step=30#show=training").page
    page.evaluate(
        """() => {
            const view = document.querySelector("training-view");
            const show = view.show.bind(view);
            view.show = (shown) => {
                globalThis.queries = [shown?.run.query, shown?.ghost?.query];
                show(shown);
            };
        }"""
    )
    slider = page.get_by_role("slider", name="Init scale").bounding_box()
    x, y = slider["x"] + slider["width"] / 2, slider["y"] + slider["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 20, y)
    page.mouse.move(x + 40, y)
    page.mouse.up()
    idle(page)
    dragged, before = page.evaluate("queries")
    assert "scale=1." in dragged
    assert "scale" not in before
    page.go_back()
    idle(page)
    assert page.evaluate("queries") == [before, dragged]


@pytest.mark.long
def test_a_click_on_a_curve_or_an_event_pauses_the_training(explorer):
    page = explorer.open("/?widths=2,20x2,2&loss=cross_entropy&data=spirals&lr=30#show=training").page
    page.locator("training-bar .play").click()
    wait_for_step(page, "shown >= step", 20)
    events = page.locator("training-view .events button")
    step = int(events.first.text_content().removeprefix("Step "))
    for _ in range(3):
        events.first.click()
    idle(page)
    assert shown_step(page) == step
    page.locator("training-bar .play").click()
    wait_for_step(page, "shown >= step", 30)
    chart = page.get_by_role("img", name="Loss ").bounding_box()
    page.mouse.click(chart["x"] + 53, chart["y"] + 40)
    idle(page)
    assert shown_step(page) == 0
    assert page.evaluate("document.querySelector('training-bar').isPlaying") is False


@pytest.mark.long
def test_two_inits_two_curves(explorer):
    page = explorer.open(f"/?{MOONS}&step=20#show=training").page
    page.locator("#pin").click()
    page.locator("#spec-scale").fill("0.5")
    page.locator("#spec-scale").press("Enter")
    idle(page)
    expect(page.locator("training-view .keys .other")).to_be_visible()
    assert shown_step(page) == 20
    # The updates of run A are lines of its colour too; no other mark of this chart is red.
    count_red = """(canvas) => {
        const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        let count = 0;
        for (let at = 0; at < data.length; at += 4)
            if (data[at + 3] > 0 && data[at] - Math.max(data[at + 1], data[at + 2]) > 80) count += 1;
        return count;
    }"""
    assert page.locator('training-view canvas[aria-label^="Update : weight"]').evaluate(count_red) > 50


@pytest.mark.long
def test_the_map_is_lighter_where_the_activations_are_smaller(explorer):
    """At half of Kaiming's scale the standard deviation halves with each layer of relu."""
    page = explorer.open("/?widths=100x11&scale=0.5&step=2#show=training").page
    lightness = page.locator('training-view canvas[aria-label^="Std of the activation"]').evaluate(
        """(canvas) => {
            const ratio = canvas.height / canvas.clientHeight;
            const { data } = canvas.getContext("2d").getImageData(70 * ratio, 0, 1, canvas.height);
            const [top, bottom, layers] = [8, 20, 10];
            return Array.from({ length: layers }, (_, layer) => {
                const y = top + (layer + 0.5) * (canvas.clientHeight - top - bottom) / layers;
                const [red, green, blue] = data.slice(4 * Math.round(y * ratio));
                return red + green + blue;
            });
        }"""
    )
    # The last layer has no relu.
    assert lightness[:9] == sorted(lightness[:9])
    assert len(set(lightness[:9])) == 9


@pytest.mark.long
def test_the_choice_of_a_data_set_fits_the_net_to_it(explorer):
    page = explorer.open("/#show=training").page
    page.locator("spec-controls .training summary").click()
    page.locator("#spec-data").select_option("digits")
    idle(page)
    assert "widths=64,50,10&loss=cross_entropy&data=digits" in page.url
    page.locator("#spec-data").select_option("spirals")
    idle(page)
    assert "widths=2,50,2&loss=cross_entropy&data=spirals" in page.url


@pytest.mark.long
def test_points_get_the_class_that_the_surface_shows(explorer, server_url):
    page = explorer.open(f"/?{MOONS}&step=60&optimizer=momentum#show=training").page
    surface = page.get_by_role("img", name="The class that the net predicts at")
    expect(surface).to_be_visible()
    assert page.locator("training-view .units canvas").count() == 1
    samples = get(server_url, "/api/v1/data.json?data=moons&seed=42")
    extent = max(abs(value) for row in samples["x"] for value in row)
    # Beside each sample, so that its dot is not read: red before blue is class 0.
    agreeing = surface.evaluate(
        """(canvas, [points, labels, extent]) => {
            const { data, width } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
            const size = Math.min(canvas.width, canvas.height);
            return points.filter(([x, y], at) => {
                const place = (value) => Math.round(size * (value + extent) / (2 * extent));
                const pixel = 4 * ((size - place(y)) * width + place(x) + 4);
                const [red, , blue] = data.slice(pixel, pixel + 3);
                return (blue > red) === (labels[at] === 1);
            }).length;
        }""",
        [samples["held_out_x"][300:], samples["held_out_y"][300:], -(-extent * 10 // 1) / 10],
    )
    assert agreeing >= 0.85 * len(samples["held_out_y"][300:])


@pytest.mark.long
def test_digits_show_their_confusions(explorer):
    page = explorer.open(f"/?{DIGITS}&step=40#show=training").page
    cells = page.locator("training-view .confusion tbody td").all_inner_texts()
    counts = [int(cell or 0) for cell in cells]
    assert len(counts) == 100
    assert sum(counts) == 360
    right = sum(counts[11 * digit] for digit in range(10))
    expect(page.locator("training-bar .scores")).to_contain_text(f"{right / 3.6:.1f} % correct")
    assert page.locator("training-view .samples canvas").count() == min(24, 360 - right)


def test_a_net_that_diverges_leaves_the_page_alive(explorer):
    page = explorer.open("/?lr=1e9&step=40#show=training").page
    assert words(page, "Loss ").startswith("Loss NaN at step 40")
    map_of_layers = page.get_by_role("img", name="Std of the activation, 2 layers by 41 steps")
    assert "NaN or Inf (purple)" in map_of_layers.get_attribute("aria-label")
    red, green, blue, alpha = map_of_layers.evaluate(
        """(canvas) => [...canvas.getContext("2d").getImageData(canvas.width * 0.7, canvas.height / 2, 1, 1).data]"""
    )
    assert (min(red, blue) - green > 60, alpha) == (True, 255), "the colour of NaN"
    page.locator("training-bar").get_by_role("button", name="Step 0").click()
    idle(page)
    assert words(page, "Loss ") == "Loss 2.37 at step 0, 2.37 at step 0."


@pytest.mark.long
@pytest.mark.parametrize("query", ["program=neuron", "program=matmul"])
def test_a_program_without_training_says_so(explorer, query):
    page = explorer.open(f"/?{query}#show=training").page
    expect(page.locator("training-bar")).to_be_hidden()
    expect(page.locator("training-view")).to_contain_text("This program has no parameters to train")
