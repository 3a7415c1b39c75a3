"""Specs at random, by hypothesis: over every program, style, activation, loss, dtype and scheme."""

from hypothesis import strategies as st

from chainrule.spec import ModelSpec
from chainrule.spec.keys import KEY_BY_NAME
from chainrule.spec.programs import PROGRAMS, RUNGS

# `linear_cpp` is `linear_function` in all but its two passes, which are compiled where there is a compiler.
HERE = tuple(name for name in PROGRAMS if name != "linear_cpp")


@st.composite
def specs(draw, *, programs=tuple(PROGRAMS), depths=(1, 64), widths=(1, 1024), batches=(1, 1024), rungs=RUNGS):
    """A spec of one of the programs, its sizes between the bounds."""
    name = draw(st.sampled_from(programs))
    keys = set(PROGRAMS[name].keys)
    width = st.integers(*widths)
    values = {"program": name}
    least, most = PROGRAMS[name].widths
    if name == "mlp":
        # Equal widths as often as others: two of a kind are a run in the query.
        count = draw(st.integers(*depths)) + 1
        values["widths"] = draw(
            st.one_of(width.map(lambda one: [one] * count), st.lists(width, min_size=count, max_size=count))
        )
        if draw(st.booleans()):
            values["widths"][-1] = 1
    else:
        values["widths"] = [min(draw(width), PROGRAMS[name].max_width) for _ in range(least)]
        assert least == most
    if PROGRAMS[name].last_width is not None:
        values["widths"][-1] = PROGRAMS[name].last_width
    for key in ("activation", "init", "style", "loss", "dtype"):
        if key in keys:
            values[key] = draw(st.sampled_from(KEY_BY_NAME[key].choices))
    for key in ("bias", "last_activation"):
        if key in keys and draw(st.booleans()):
            values[key] = not KEY_BY_NAME[key].default
    if "rung" in keys:
        values["rung"] = draw(st.sampled_from(rungs))
    if "batch" in keys:
        values["batch"] = draw(st.integers(*batches))
    if "scale" in keys:
        values["scale"] = draw(st.sampled_from((1.0, 1e-4, 0.3, 1e4)))
    if values.get("loss") == "cross_entropy":
        values["widths"][-1] = max(2, values["widths"][-1])
    if name == "neuron" and values.get("init") == "torch_default":
        values["init"] = "uniform"
    return ModelSpec.parse(values)
