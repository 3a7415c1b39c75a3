import pytest

from chainrule.errors import LimitError, SpecError, SweepError
from chainrule.spec import ModelSpec
from chainrule.sweeps.axes import read_axis
from chainrule.sweeps.sweep import read_sweep

NET = ModelSpec.from_query("widths=10x4")


@pytest.mark.parametrize(
    ("over", "values"),
    [
        ("scale=0.5:2:4", (0.5, 1.0, 1.5, 2.0)),
        ("lr=log:0.01:1:3", (0.01, pytest.approx(0.1), 1.0)),
        ("depth=2:5:9", (2, 3, 4, 5)),  # equal integers count once
        ("width=log:8:32:3", (8, 16, 32)),
        ("activation=tanh,relu", ("tanh", "relu")),
        ("bias=true,false", (True, False)),
        ("scale=2", (2.0,)),
        ("scale=2:0.5:2", (2.0, 0.5)),
    ],
)
def test_an_axis_has_the_values_of_its_text(over, values):
    assert read_axis(over).values == values


@pytest.mark.parametrize(
    ("over", "says"),
    [
        ("", "^over: '' is not KEY=FROM:TO:COUNT.*no key"),
        ("scal=1:2:3", "^over: scal: unknown key; .* did you mean 'scale'"),
        ("seed=1:2:3", "seed: unknown key; .*number of seeds"),
        ("widths=1,2", "widths: unknown key; .*use depth or width"),
        ("scale", "'scale' is not KEY=FROM:TO:COUNT.*no values"),
        ("scale=", "no values"),
        ("scale=1:2", "'scale=1:2' is not KEY=FROM:TO:COUNT"),
        ("scale=1:2:0", "COUNT is '0'"),
        ("scale=log:0:2:3", "scale: '0' is not a number"),
        ("lr=log:0:2:3", "must be above 0"),
        ("scale=1:99999:3", "scale: '99999' is not a number from"),
        ("scale=nan:1:3", "scale: 'nan' is not a number"),
        ("activation=tanh:relu:2", "one of linear"),
        ("activation=tanh,foo", "activation: 'foo' is not one of"),
        ("scale=log:2", "'scale=log:2' is not"),
    ],
)
def test_a_bad_axis_is_named_with_what_is_allowed(over, says):
    with pytest.raises((SweepError, SpecError), match=says):
        read_sweep(NET, [over])


def test_a_sweep_names_what_contradicts():
    with pytest.raises(SweepError, match="over: missing"):
        read_sweep(NET, [])
    with pytest.raises(SweepError, match="scale is given twice"):
        read_sweep(NET, ["scale=1,2", "scale=3,4"])
    with pytest.raises(SweepError, match="depth: needs hidden layers of one width; the widths are 9,8,7,1"):
        read_sweep(ModelSpec.from_query("widths=9,8,7,1"), ["depth=2:3:2"])
    with pytest.raises(SweepError, match="width: needs hidden layers"):
        read_sweep(ModelSpec.from_query("widths=9,1"), ["width=2:3:2"])
    with pytest.raises(SpecError, match="bias_std: 1 with bias=false"):
        read_sweep(NET, ["bias_std=0:1:3", "bias=true,false"])
    with pytest.raises(SpecError, match="program: 'exp' has no maps"):
        read_sweep(ModelSpec(program="exp"), ["scale=1,2"])
    with pytest.raises(SweepError, match="seeds: expected an integer from 1 to 1000, got 0"):
        read_sweep(NET, ["scale=1,2"], 0)
    with pytest.raises(SpecError, match="seed"):
        read_sweep(NET.replace(seed=2**63 - 1), ["scale=1,2"], 2)


@pytest.mark.parametrize("over", [["scale=1:2:1000000000"], ["scale=1:2:100000", "lr=0:1:10000"]])
def test_too_many_cells_are_refused_with_an_estimate(over):
    with pytest.raises(
        LimitError, match=r"over: 1000000000 cells, about [0-9]+ (h|days) on one core; at most 10000000"
    ):
        read_sweep(NET, over)


@pytest.mark.parametrize(
    ("measure", "says"),
    [
        ("gradient", "measure: 'gradient' is not one of gradient_ratio"),
        ("activation_std:5", "a net of the sweep has 3 layers"),
        ("activation_std:0", "number of a layer"),
        ("loss:3", "loss takes no argument"),
        ("steps_to_loss", "write steps_to_loss:LOSS"),
        ("steps_to_loss:-1", "a loss above 0"),
        ("accuracy", "random targets have no classes"),
        ("saturation", "relu does not saturate"),
        ("loss_ratio", "it needs a training"),
    ],
)
def test_a_measure_that_the_nets_lack_is_refused(measure, says):
    with pytest.raises(SweepError, match=says):
        read_sweep(NET, ["scale=1,2"], measure=measure)


def test_units_of_tanh_do_not_die():
    with pytest.raises(SweepError, match="units of tanh do not die"):
        read_sweep(NET, ["activation=relu,tanh"], measure="dead_fraction")


def test_too_many_shapes_are_refused_before_they_are_built():
    with pytest.raises(LimitError, match=r"over: 4000000 different shapes of nets \(batch, step\); at most 100000"):
        read_sweep(NET, ["batch=1:2000:2000", "step=1:2000:2000"], measure="loss")
