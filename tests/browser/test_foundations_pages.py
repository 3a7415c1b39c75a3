"""Each page of the chapter: inputs move its results, an element shows its terms, and its trap is explained."""

import re

import pytest
from figures import significant
from playwright.sync_api import expect


def answer_of(page, server_url, name):
    """The JSON answer to the inputs in the page's address."""
    return page.request.get(f"{server_url}/foundations/{name}.json?{page.url.partition('?')[2]}").json()


def lit(tables, order):
    """Indices of the cells that are lit in one of several tables."""
    cells = tables.nth(order).locator("td[class^=lit]")
    return [cell.get_attribute("data-index") for cell in cells.all()]


def test_neuron(chapter):
    page = chapter("neuron")
    row, total = page.locator("#neuron tbody tr"), page.locator("#neuron .total")
    expect(row.nth(0)).to_have_text("020.50011")
    page.fill("#input-weights", "0.5,0.25,-4")
    expect(row.nth(2)).to_have_text("20.500−4−2−1.25")
    expect(total).to_contain_text("−0.500")
    expect(page.locator("#relu svg")).to_have_attribute("aria-label", "relu(−0.500) = 0")
    expect(page).to_have_url(re.compile(r"\?weights=0\.5%2C0\.25%2C-4$"))
    trap = page.locator("#zip-trap")
    expect(trap).to_be_hidden()
    page.get_by_role("button", name="one weight too few").click()
    expect(trap).to_contain_text("would return 1.50")
    expect(trap.locator("tr.dropped")).to_have_text("20.500dropped")
    expect(page.locator("#input-weights")).to_have_attribute("aria-invalid", "true")
    expect(total).to_contain_text("0.500")  # the last good answer stays, dimmed
    expect(page.locator("#neuron")).to_have_css("opacity", "0.45")
    expect(page.locator("#relu")).to_have_css("opacity", "0.45")
    page.fill("#input-b", "5,1,-1,0.5")  # the layer goes on
    expect(page.locator("#layer-sum")).to_have_text("y[0, 0] = 1·1 + 2·0 + 3·(−1) + 5 = 3")
    expect(page.locator("#layer")).to_have_css("opacity", "1")
    page.fill("#input-b", "0,1,-1,0.5")
    page.get_by_role("button", name="a NaN").click()
    expect(trap).to_be_hidden()
    expect(page.locator("#relu")).to_contain_text("would return 0: no comparison with NaN is true")

    tables, zip_line = page.locator("#layer figure"), page.locator("#listing-dense .line.lit")
    expect(zip_line).to_have_count(0)
    tables.nth(3).locator('td[data-index="1,2"]').hover()
    expect(page.locator("#layer-sum")).to_have_text("y[1, 2] = (−1)·2 + 0·(−1) + 2·0 + (−1) = −3")
    assert [lit(tables, order) for order in range(5)] == [
        ["1,0", "1,1", "1,2"],
        ["2,0", "2,1", "2,2"],
        ["2"],
        ["1,2"],
        ["1,2"],
    ]
    expect(zip_line).to_contain_text("zip(x[i, :], w[j, :]")
    page.fill("#input-b", "0,1,-2,0.5")
    expect(tables.nth(4).locator('td[data-index="1,2"]')).to_have_text("−4")
    expect(page.locator("#layer-agreement")).to_contain_text(
        "Largest difference between the two: 0: no element differs"
    )


@pytest.mark.long
def test_arithmetic(chapter):
    page = chapter("arithmetic")
    row = page.locator('#operators tr[data-operator="lt"]')
    expect(row).to_contain_text("[False, True, True]")
    page.fill("#input-a", "10,6,-5")
    expect(page.locator("#item .item")).to_have_text("(a + b).mean().item() = 9.333333015441895")
    row.get_by_role("button").click()
    expect(row).to_have_class("chosen")
    expect(page.locator("#refused-mean")).to_contain_text("Got: Bool")
    expect(page).to_have_url(re.compile(r"\?a=10%2C6%2C-5&op=lt$"))
    page.locator('#operation figure:last-of-type td[data-index="2"]').hover()
    expect(page.locator("#element-sum")).to_have_text("a < b at [2]: −5 < 7 = True")
    expect(page.locator("#operation td.lit, #operation td.lit-2")).to_have_text(["−5", "7"])

    product = page.locator("#product")
    expect(product).to_contain_text("RuntimeError: The size of tensor a (3) must match the size of tensor b (2)")
    expect(product.locator("td.misfit")).to_have_text(["3", "2"])
    page.fill("#input-n", "1,2,3;4,5,6;1,1,1")
    expect(product.locator("figure").last.locator("td")).to_have_text("1 4 9 16 25 36 7 8 9".split())
    page.fill("#input-b", "1,2")
    expect(page.locator("#operation")).to_contain_text("must match the size of tensor b (2)")
    expect(product.locator("figure")).to_have_count(3)  # the rest of the page goes on
    page.fill("#input-b", "1,two")
    expect(page.locator("#input-b-note")).to_contain_text("'two' is not a number")


def test_a_rounded_sum_is_not_called_the_rounding_of_the_ratio(chapter):
    page = chapter("arithmetic")
    item = page.locator("#item")
    plot = item.locator("svg")
    expect(item).to_contain_text("the ratio has infinitely many digits; 24 are kept")
    expect(plot).to_contain_text("the nearest float32")
    page.get_by_role("button", name="1e8 + 1 − 1e8").click()
    expect(item).to_contain_text("have the sum 1, and there are 3")
    said = "The float32 nearest to the ratio 0.3333333333333333 … is 0.3333333432674408; mean() gives 0, because"
    expect(plot).to_have_attribute("aria-label", f"{said} the sum was rounded before")
    expect(plot.locator("text.stored")).to_have_text(["0", "the result of mean()"])
    page.get_by_role("button", name="16777216 + 1").click()
    expect(item).to_contain_text("the sum is rounded to 16777216, which is 1.00 below the exact sum")
    expect(item).to_contain_text("the ratio has 25 digits; 24 are kept")
    said = "The ratio 8388608.5 lies halfway between two float32 numbers; 8388608 is the even one"
    expect(plot).to_have_attribute("aria-label", said)


RUNGS = ["loops", "elementwise", "broadcasting", "einsum", "@"]


def test_matmul_lights_the_row_and_the_column_of_an_element(chapter, server_url):
    page = chapter("matmul?m=2&k=3&n=4&rungs=@")
    window, tables = answer_of(page, server_url, "matmul")["window"], page.locator("#window figure")
    page.locator('#window figure:last-of-type td[data-index="1,2"]').hover()
    assert lit(tables, 0) == ["1,0", "1,1", "1,2"]
    assert lit(tables, 1) == ["0,2", "1,2", "2,2"]
    assert lit(tables, 2) == ["1,2"]
    expect(page.locator("#listing-loops .line.lit")).to_have_text(re.compile(re.escape("c[i, j] += a[i, k] * b[k, j]")))
    said = page.locator("#element").text_content().replace("−", "-")
    factors = [float(each) for each in re.findall(r"-?\d+\.\d+(?:e-?\d+)?", said)]
    row, column = window["a"]["values"][1], [line[2] for line in window["b"]["values"]]
    expected = [each for pair in zip(row, column, strict=True) for each in pair]
    assert factors == pytest.approx([*expected, window["c"]["values"][1][2]], rel=5e-3)
    page.locator('#window figure:last-of-type td[data-index="1,2"]').press("ArrowLeft")
    assert lit(tables, 1) == ["0,1", "1,1", "2,1"]


def let_go(page, held):
    """Answers the request that is held, as soon as it is: the page says what runs before it asks."""
    while not held:
        page.wait_for_timeout(10)
    held.pop().continue_()


@pytest.mark.long
def test_matmul_races_the_rungs_one_by_one(chapter):
    page = chapter("matmul?m=2&k=3&n=4")
    held = []
    page.route(re.compile("rungs=(loops|broadcasting)"), lambda route: held.append(route))
    page.fill("#input-k", "7")
    state, rows = page.locator("#race-state"), page.locator("#race [data-rung]")
    # Before anything has run.
    expect(state).to_have_text("1 of 5: loops")
    expect(rows).to_have_text(["loopsruns now …", *(f"{name}waits" for name in RUNGS[1:])])
    expect(page.locator("#race-progress")).to_have_js_property("value", 0)
    let_go(page, held)
    expect(state).to_have_text("3 of 5: broadcasting")
    expect(rows.nth(1)).to_contain_text("✓")
    expect(rows.nth(2)).to_contain_text("runs now")
    expect(rows.nth(4)).to_contain_text("waits")
    expect(page.locator("#race-progress")).to_have_js_property("value", 2)
    let_go(page, held)
    expect(state).to_have_text("5 of 5 done")
    for row, name in zip(rows.all(), RUNGS, strict=True):
        expect(row).to_have_attribute("data-rung", name)
        expect(row.locator(".time")).to_contain_text(re.compile(r"\d (µs|ms|s)"))
        expect(row.locator(".check")).to_contain_text("✓")
    expect(rows.nth(0).locator(".speedup")).to_have_text("1×")
    expect(rows.nth(0).locator(".printed")).to_have_text("325 ms")
    expect(page.locator("#window")).to_contain_text("a is 2 × 7, b is 7 × 4, c is 2 × 4: 56 multiplications")


@pytest.mark.long
def test_loops_that_would_take_too_long_say_so(chapter):
    page = chapter("matmul?m=2&k=3&n=4")
    answers = []
    page.on("response", lambda response: answers.append(response) if "matmul.json" in response.url else None)
    # Minutes for the loops, milliseconds for @: no machine is so busy that the one would run or the other would not.
    chapter("matmul?m=512&k=512&n=256")
    expect(page.locator("#race-state")).to_have_text("5 of 5 done")
    loops, fastest = page.locator('#race [data-rung="loops"]'), page.locator('#race [data-rung="@"]')
    expect(loops).to_contain_text(re.compile(r"did not run: it would take about [\d.]+ (hours|minutes), and \S+ s are"))
    expect(fastest.locator(".check")).to_contain_text("✓")
    # Every answer estimates the loops anew; the page compares all rungs with the first estimate.
    first, *_, last = [answer.json() for answer in answers]
    expected = first["baseline"]["seconds"] / last["rungs"][0]["seconds"]
    said = fastest.locator(".speedup").text_content().removesuffix("×").replace(",", "")
    assert float(said) == pytest.approx(expected, rel=5e-3)


def test_broadcasting(chapter):
    page = chapter("broadcasting")
    expect(page.locator(".aligned td.rule")).to_have_text(["b missing → 1", "a stretched", "b stretched"])
    expect(page.locator(".aligned td.result")).to_have_text(["3", "4", "5"])
    page.fill("#input-a", "[10,20,30]")
    page.fill("#input-b", "[[1],[2]]")
    expect(page.locator(".aligned td.rule")).to_have_text(["a missing → 1", "b stretched"])
    expect(page.locator('[data-expanded-stride="a"]')).to_have_text("(0, 1)")
    seen = page.locator("#copies .tensor", has_text="expanded")
    expect(seen.first.locator("td.ghost")).to_have_text(["10", "20", "30"])
    expect(seen.last.locator("td.ghost")).to_have_text(["1", "1", "2", "2"])
    page.locator("#copies .tensor").last.locator('td[data-index="1,2"]').hover()
    expect(page.locator("#element")).to_have_text("result[1, 2] = a[2] + b[1, 0] = 30 + 2 = 32")
    expect(page.locator("#copies td.lit")).to_have_text(["30", "30"])


@pytest.mark.long
def test_shapes_that_do_not_fit_dim_their_section_alone(chapter):
    page = chapter("broadcasting")
    page.fill("#input-b", "4,2")
    expect(page.locator("#steps")).to_contain_text("The size of tensor a (5) must match the size of tensor b (2)")
    expect(page.locator(".aligned td.at-fault")).to_have_text(["5", "2", "✕"])
    expect(page.locator(".aligned td.not-compared")).to_have_count(2)
    # Sections that use other inputs go on: their figures follow.
    page.fill("#input-c", "10,20,40")
    expect(page.locator("#ways-copies .tensor").nth(2).locator("td").nth(2)).to_have_text("43")
    page.fill("#input-mean", "nothing")
    expect(page.locator("#input-mean-note")).to_contain_text("'nothing' is not a number")
    expect(page.locator("section[data-stale] h2")).to_have_text(["Two shapes", "With a scalar"])
    for figure, opacity in {"#copies": "0.45", "#ways": "1", "#normalized": "0.45"}.items():
        expect(page.locator(figure)).to_have_css("opacity", opacity)
    page.fill("#input-mean", "4")
    expect(page.locator("section[data-stale] h2")).to_have_text(["Two shapes"])
    page.fill("#input-b", "2147483648,1,1,1")
    expect(page.locator("#copies")).to_contain_text("Too large for a picture")
    expect(page.locator("section[data-stale]")).to_have_count(0)


@pytest.mark.long
def test_the_trap_of_broadcasting_waits_for_a_guess(chapter):
    page = chapter("broadcasting")
    trap = page.locator("#trap")
    expect(trap).to_be_empty()
    page.fill("#guess-shape", "(200, 1)")
    page.fill("#guess-loss", "0.01")
    page.keyboard.press("Enter")
    verdict = page.locator("#trap .verdict")
    expect(verdict).to_contain_text("is (200, 200). You said (200, 1).")
    expect(verdict).to_contain_text("The loss is different: ")
    expect(trap).to_contain_text("always predicts the mean of the targets than")
    expect(page.locator("#trap-sources")).to_be_visible()
    # An empty prediction is not judged, and a shape may be written in more than one way.
    page.fill("#guess-loss", "")
    for shape in ("200 x 200", "200×200", "[200, 200]", "200 200"):
        page.fill("#guess-shape", shape)
        page.keyboard.press("Enter")
        expect(verdict).to_have_text("The shape is right: (200, 1) − (200,) is (200, 200).")
    # A guess belongs to its predictions.
    page.fill("#input-noise", "100")
    expect(trap).to_contain_text("both losses are lower for a net that always")
    expect(verdict).to_have_count(0)


CALLS = {
    "matrix product": ("ik,kj->ij", "(5, 10)"),
    "transpose": ("ij->ji", "(2, 2)"),
    "x·y·z per row": ("bi,ij,bj->b", "(2,)"),
    "trace": ("ii", "()"),
    "diagonal": ("ii->i", "(2,)"),
    "outer product": ("i,j->ij", "(3, 2)"),
    "batch product": ("bij,bjk->bik", "(3, 2, 4)"),
    "batch product, as sublists": ("", "(3, 2, 4)"),
    "batch permute": ("...ij->...ji", "(2, 3, 5, 4)"),
    "bilinear": ("bn,anm,bm->ba", "(2, 3)"),
}


def test_einsum(chapter):
    page = chapter("einsum")
    page.fill("#input-equation", "ij,kj->ki")
    page.fill("#input-shapes", "2,3;4,3")
    expect(page.locator("#indices tbody th")).to_have_text(["k", "i", "j"])
    expect(page.locator("#indices td .role")).to_have_text(["kept", "kept", "summed"])
    expect(page.locator("#written-loops")).to_contain_text("out[k, i] += t0[i, j] * t1[k, j]")
    expect(page.locator("#agreement")).to_contain_text("Loops and torch.einsum agree")
    expect(page.locator("#sublist-call")).to_have_text("torch.einsum(t0, [0, 1], t1, [2, 1], [2, 0])")
    page.locator('#operands .result td[data-index="3,1"]').hover()
    cells = page.locator("#operands td.lit, #operands td.lit-2").all()
    assert " ".join(cell.get_attribute("data-index") for cell in cells) == "1,0 1,1 1,2 3,0 3,1 3,2"
    said = page.locator("#element").inner_text().replace("−", "-")
    products, value = re.fullmatch(r"out\[3, 1\] = Σ j +t0\[1, j\] · t1\[3, j\] = (.*) = ([-.\de]+)", said).groups()
    terms = [[float(each.strip("()")) for each in term.split(" · ")] for term in products.split(" + ")]
    assert sum(a * b for a, b in terms) == pytest.approx(float(value), abs=0.02)

    buttons = page.get_by_role("group", name="The chapter's calls").get_by_role("button")
    expect(buttons).to_have_text(list(CALLS))
    for button, (equation, shape) in zip(buttons.all(), CALLS.values(), strict=True):
        button.click()
        expect(page.locator("#operands .result figcaption .soft")).to_have_text(shape)
        if equation:
            expect(page.locator("#input-equation")).to_have_value(equation)
    page.get_by_role("button", name="batch product, as sublists").click()
    expect(page.locator("#anatomy")).to_contain_text("The sublists mean ...AB,...BC->...AC")
    page.fill("#input-equation", "bij,bjk")
    expect(page.locator("#input-sublists")).to_have_value("")
    expect(page.locator("#anatomy")).to_contain_text(
        "the output is implicit: ik. With an arrow the equation is bij,bjk->ik."
    )
    expect(page.locator("#chapter-rules li")).to_contain_text(["Followed.", "Followed.", "Followed."])
    page.fill("#input-equation", "bij,bjk->bi")
    broken = ["Broken: b is repeated, but also in the output.", "Followed.", "Broken: k is not repeated, but summed"]
    expect(page.locator("#chapter-rules li")).to_contain_text(broken)


def test_a_wrong_equation_is_pointed_at_and_can_be_mended(chapter):
    page = chapter("einsum")
    failure = page.locator("#failure")
    page.fill("#input-equation", "bij,bjk->biz")
    expect(failure.locator(".caret")).to_have_text("bij,bjk->biz\n           ^")
    expect(failure).to_contain_text("output subscript z does not appear")
    expect(page.locator("#input-equation")).to_have_attribute("aria-invalid", "true")
    page.fill("#input-equation", "ij,jk")
    page.get_by_role("button", name="Use shapes that fit").click()
    expect(failure).to_be_empty()
    expect(page.locator("#input-shapes")).to_have_value("2,3;3,4")
    expect(page.locator("#input-shapes")).to_be_focused()
    page.fill("#input-sublists", "[0, 1], [1, 99]")
    expect(failure).to_contain_text("'99' is neither `...` nor a number from 0 to 51")
    expect(page.locator("#input-sublists")).to_have_attribute("aria-invalid", "true")


@pytest.mark.long
def test_initialization(chapter):
    page = chapter("initialization")
    stack, figure = page.locator("#stack-says"), page.locator("#layer tbody td.measured").nth(1)
    expect(figure).to_have_text("9.75")
    expect(stack).to_have_text(re.compile("The first Inf appears in layer 3[789], the first NaN in layer (38|39|40)."))
    assert page.locator("#stack-figure circle.lane").count() > 10
    page.get_by_role("button", name="Kaiming, √(2 / n_in)").click()
    expect(figure).to_have_text("1.38")
    page.get_by_label("relu after every layer").check()
    expect(stack).to_contain_text("After 50 layers the standard deviation is 0.155")
    assert page.locator("#stack-figure circle.measured").count() == 50
    assert page.locator("#stack-figure circle.lane").count() == 0
    expect(page.locator("#stack-link")).to_have_attribute(
        "href", "/?widths=100x51&last_activation=true&bias=false&init=kaiming_normal&scale=1&batch=200&seed=42"
    )
    page.fill("#input-depth", "65")
    expect(page.locator("#input-depth-note")).to_have_text("depth: '65' is not an integer from 1 to 64")
    expect(figure).to_have_text("1.38")
    page.fill("#input-depth", "3")
    expect(page.locator("#input-depth-note")).to_have_text("")
    expect(stack).to_contain_text("After 3 layers")

    printed = page.locator("[data-experiment='kaiming-relu'][data-figure='std'] td.number").first
    expect(printed).to_have_text("0.8259")
    row = page.locator("[data-experiment='deep-vanishing'][data-figure='mean']")
    row.get_by_role("button", name="run it above").click()
    expect(stack).to_have_text(re.compile("From layer 4[4567] on every value is exactly 0."))
    expect(page.locator("#input-scale")).to_have_value("0.01")
    assert page.locator("#window td").all_text_contents() == ["0"] * 25


def lit_code(page, listing):
    return [line.strip() for line in page.locator(f"#listing-{listing} .line.lit .code").all_text_contents()]


@pytest.mark.long
def test_backward(chapter):
    page = chapter("backward")
    assert lit_code(page, "forward_and_backward") == ["mse_grad(out, targ)"]
    page.locator("button.gradient", has_text="w2.g").click()
    assert lit_code(page, "lin_grad") == ["accumulate(w, inp.t() @ out.g)"]
    assert lit_code(page, "forward_and_backward") == ["lin_grad(l2, out, w2, b2)"]
    expect(page.locator("#listing-mse_grad")).to_be_hidden()
    expect(page.locator("#derivation h3")).to_have_text("The linear layer, by its weight: w2.g")
    assert page.locator("#derivation math").count() == 4
    # An equation is as large as its text, in a browser that knows MathML.
    assert page.locator("#derivation math").last.bounding_box()["height"] > 20
    # It stays looked at when the numbers change.
    page.fill("#input-seed", "7")
    expect(page.locator("#loss")).not_to_have_text("loss = 2.37")
    assert lit_code(page, "lin_grad") == ["accumulate(w, inp.t() @ out.g)"]

    fitting = page.locator("#trials-w [data-fitting]")
    expect(fitting).to_have_attribute("data-fitting", "1")
    page.get_by_role("button", name="all sizes 4").click()
    expect(fitting).to_have_attribute("data-fitting", "8")
    expect(fitting).to_contain_text("only inp.t() @ out.g is the gradient")
    page.locator("#trials-w tr[data-code='out.g @ inp'] button").click()
    expect(page.locator("#trials-w .product-picture")).to_have_attribute(
        "aria-label", "out.g @ inp: (4, 4) @ (4, 4) gives (4, 4); w.g is (4, 4)"
    )
    page.fill("#input-n_out", "3")
    expect(page.locator("#divide-trap tbody tr").first.locator("td").last).to_have_text("3.00 ×")
    expect(page.locator("#divide-trap tbody tr").last).to_contain_text("another shape")


@pytest.mark.long
def test_styles_stand_side_by_side(chapter):
    page = chapter("styles")
    heads = page.locator("#code thead th")
    expect(heads).to_have_text(["functions", "classes"])
    # A line stands beside the one it comes from, and an unchanged line beside itself.
    by_hand = page.locator("#code tr", has=page.locator("td.left", has_text="accumulate(w, inp.t() @ out.g)"))
    expect(by_hand.locator("td.right")).to_contain_text("accumulate(self.w, self.inp.t() @ self.out.g)")
    same = page.locator("#code tr.same").first.locator("td").all_text_contents()
    assert same == ["def accumulate(tensor: Tensor, gradient: Tensor) -> None:"] * 2
    page.select_option("#input-compare", "autograd_function to module")
    expect(heads).to_have_text(["autograd.Function", "nn.Module"])
    # Nothing is left of the gradients.
    assert page.locator("#counts td.backward").last.text_content() == "0"
    assert page.locator("#code td.nothing").first.text_content() == "autograd"
    page.select_option("#input-compare", "all five")
    expect(heads).to_have_count(5)
    # A row's cells begin at one height, and no name is broken or cut off.
    tops = [box["y"] for box in (cell.bounding_box() for cell in page.locator("#code tbody tr:nth-child(2) td").all())]
    assert max(tops[:5]) - min(tops[:5]) < 1
    cut = "cells => cells.filter((cell) => cell.scrollWidth > cell.clientWidth + 1).map((cell) => cell.textContent)"
    assert page.locator("#code td").evaluate_all(cut) == []
    arrows = page.locator("#code .whole").evaluate_all("all => all.map((each) => each.getClientRects().length)")
    assert set(arrows) == {1}
    assert len(arrows) > 40

    expect(page.locator("#misprint .raised")).to_have_text("AttributeError: 'Lin' object has no attribute 'inp'")
    page.fill("#input-hidden", "7")
    expect(page.locator("#models tbody tr").last).to_contain_text("layers.0.weight (7, 100)")
    address = "/?widths=100%2C7%2C1&batch=200&seed=42&dtype=float32&style=module"
    expect(page.locator("#explorer a").last).to_have_attribute("href", address)


@pytest.mark.long
def test_a_scale_that_overflows_sets_styles_apart(chapter):
    page = chapter("styles")
    says = page.locator("#agreement-says")
    expect(says).to_contain_text("the order of the additions differs")
    page.get_by_role("button", name="gradients that overflow").click()
    expect(says).to_contain_text("torch's own relu returns 0")
    expect(says).to_contain_text("in functions, classes, LayerFunction, autograd.Function;")
    row = page.locator("#agreement tbody tr", has_text="nn.Module")
    assert row.locator("[data-leaf='b1']").text_content() == "36 NaN, 14 Inf"
    page.fill("#input-scale", "1e12")
    # ±Inf has no rounding error, so the text counts it.
    expect(says).to_contain_text("±Inf, at the same places in every style. ")
    page.get_by_role("button", name="a loss that overflows").click()
    expect(says).to_contain_text("The loss overflows, but the gradients do not use it.")


def test_functions(chapter):
    page = chapter("functions")
    returned = page.locator('[data-group="returned"] .value')
    expect(returned).to_have_count(3)
    page.uncheck("#input-x_requires_grad")
    expect(returned.nth(0).locator(".none")).to_have_text("None")
    expect(returned.nth(1).locator("table")).to_be_visible()
    expect(page.locator("#context")).to_contain_text("ctx.needs_input_grad == (False, True, True)")
    assert "x_requires_grad=false" in page.url
    page.check("#input-x_requires_grad")
    page.get_by_role("button", name="two outputs, one used").click()
    received = page.locator('[data-group="got"] .value')
    expect(received).to_have_count(2)
    expect(page.locator("#count")).to_contain_text("took 1 argument and returned 2 outputs, so backward got 2")
    expect(received.nth(1)).to_contain_text("autograd made zeros")
    expect(page.locator("#input-weight")).to_be_hidden()
    page.uncheck("#input-materialize_grads")
    expect(received.nth(1).locator(".none")).to_have_text("None")
    expect(page.locator("#listing-sin_cos_sparing")).to_be_visible()


@pytest.mark.long
def test_gradcheck(chapter, server_url):
    page = chapter("gradcheck?batch=2&n=2")
    expect(page.locator('.check-card[data-dtype="float64"]')).to_have_attribute("data-passed", "true")
    expect(page.locator('.check-card[data-dtype="float32"]')).to_have_attribute("data-passed", "false")
    expect(page.locator("#why")).to_contain_text("fails in float32, although it is correct")
    expect(page.locator(".jacobian")).to_have_count(3)
    answer = answer_of(page, server_url, "gradcheck")
    inp = answer["checks"]["float64"]["comparisons"][0]
    first = page.locator(".jacobian").first
    first.locator('[data-kind="difference"] canvas').focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    read = f"∂out[0, 1] / ∂inp[0, 1]: analytic {significant(inp['analytic']['values'][1][1])},"
    expect(first.locator(".readout")).to_contain_text(read)
    page.select_option("#input-dtype", "float32")
    expect(page.locator("#jacobians-title")).to_have_text("The Jacobians in float32")
    expect(first.locator(".verdict.bad")).to_be_visible()

    # A dot of the curve chooses the step.
    steps = answer["steps"]["eps"]
    dots = page.locator(".curve.float32 circle")
    expect(dots).to_have_count(len(steps))
    dots.nth(steps.index(pytest.approx(1e-2))).dispatch_event("click")
    expect(page.locator("#input-eps")).to_have_value("1e-2")
    expect(page.locator(".step-curve .strong")).to_have_text("eps 1e−2")

    page.get_by_role("button", name="relu at its kink").click()
    kink = "The forward has a kink here: the differences from the left (0) and the right (1) disagree. Move the input."
    expect(page.locator("#why")).to_have_text(kink)
    expect(page.locator(".jacobian .bad").last).to_have_text(f"∂out[0, 0] / ∂inp[0, 0]: {kink}")

    page.get_by_role("button", name="Exercise B").click()
    line, solution = page.locator("#listing-exercise_b .line.lit"), page.locator("#solution")
    expect(page.locator("#listing-exercise_b")).to_be_visible()
    expect(page.locator("#listing-linear_function")).to_be_hidden()
    expect(solution).to_be_empty()
    expect(line).to_have_count(0)
    page.click("#reveal")
    expect(line).to_have_attribute("data-line", str(answer_of(page, server_url, "gradcheck")["solution"]["line"]))
    expect(solution).to_contain_text("grad_output @ weight.t()")
    page.get_by_role("button", name="Exercise C").click()
    expect(solution).to_be_empty()


def test_extension(chapter, server_url):
    page = chapter("extension")
    expect(page.locator("#race [data-style]")).to_have_count(4)
    cpp = page.locator('[data-style="LinearCpp"]')
    if answer_of(page, server_url, "extension")["state"]["built"]:
        expect(page.locator("#state")).to_contain_text("The extension is built")
        expect(cpp.locator(".bar")).to_have_count(2)
        expect(page.locator("#check")).to_contain_text("the gradient check passes")
    else:
        expect(page.locator("#state")).to_contain_text("chainrule build-extension")
        expect(cpp).to_contain_text("not built")
    expect(page.locator('[data-style="F.linear"] .times')).to_have_text(re.compile(r"^[\d.]+ [µm]s$"))
    page.fill("#input-batch", "2")
    page.fill("#input-fan_in", "3")
    page.fill("#input-fan_out", "5")
    expect(page.locator("#race-note")).to_contain_text("30 multiplications")
