"""Specs at random, by hypothesis: over every program, style, activation, loss, dtype and scheme."""

from hypothesis import strategies as st

from chainrule.errors import SpecError
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


_CHANGES = st.one_of(
    st.builds(lambda scale: {"scale": scale}, st.floats(1e-4, 1e4)),
    st.sampled_from([{"scale": scale} for scale in (1.0, 0.1, 1.7, 1e4)]),
    *(
        st.sampled_from([{key: choice} for choice in KEY_BY_NAME[key].choices])
        for key in ("init", "activation", "dtype", "style", "loss")
    ),
    st.sampled_from([{"seed": 1}, {"seed": 2}, {"widths": "5,9,9,2"}, {"program": "exp"}, {"program": "mlp"}]),
    st.sampled_from([{"bias_std": 0}, {"bias_std": 0.3}, {"bias": False}, {"bias": True, "bias_std": 0.1}]),
)


@st.composite
def changing_specs(draw):
    """Specs one after another, each with one key of the last changed, as a user changes them."""
    specs = [ModelSpec.parse({"widths": "6,8,8,3", "batch": 5})]
    for change in draw(st.lists(_CHANGES, min_size=2, max_size=8)):
        try:
            specs.append(specs[-1].replace(**change))
        except SpecError:  # a refused spec is never built
            continue
    return specs
