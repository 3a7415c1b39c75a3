import numpy as np
import pytest

from chainrule.build.stack import STACKED
from chainrule.run import Retracer
from chainrule.spec import ModelSpec
from chainrule.sweeps.presets import MAP_PRESETS
from chainrule.sweeps.run import run_sweep, sweep
from chainrule.sweeps.sweep import STACK_NETS, read_sweep

NET = ModelSpec.from_query("widths=10x4&batch=8&activation=tanh&init=lecun_normal")


@pytest.mark.parametrize(
    "over", [["scale=0.5:2:17"], ["scale=0.5:2:20", "depth=1:9:9"], ["activation=tanh,relu", "lr=0:1:7", "width=3:6:4"]]
)
@pytest.mark.parametrize("seeds", [1, 3])
def test_every_cell_is_in_one_stack_with_its_own_values(over, seeds):
    plan = read_sweep(NET, over, seeds)
    cells = np.concatenate([stack.cells for stack in plan.stacks])
    assert sorted(cells.tolist()) == list(range(plan.cells))
    for stack in plan.stacks:
        assert len(stack) <= STACK_NETS
        for place, cell in enumerate(stack.cells.tolist()):
            spec = plan.spec_of(cell)
            assert spec.seed == stack.seeds[place]
            own = {key: values[place] for key, values in stack.values.items()}
            assert spec == stack.spec.replace(seed=spec.seed, **own)
            assert set(own) <= set(STACKED)


def test_the_first_stacks_cover_the_map():
    plan = read_sweep(NET, ["scale=0.5:2:65", "lr=0:1:65"])
    passes = np.cumsum([len(stack) for stack in plan.stacks])
    cells = np.concatenate([stack.cells for stack in plan.stacks])
    indices = plan.places(cells)[0]
    for count, stride in ((25, 16), (81, 8), (289, 4), (1089, 2)):
        assert count in passes
        assert {index % stride for axis in indices for index in axis[:count].tolist()} == {0}


def test_the_table_has_a_row_per_cell(tmp_path):
    result = sweep(NET, ["scale=1,2", "depth=2,3"], seeds=2, measure="activation_std")
    table = result.columns
    assert list(table) == ["scale", "depth", "seed", "activation_std"]
    assert list(zip(table["scale"], table["depth"], table["seed"], strict=True)) == [
        (scale, depth, seed) for depth in (2, 3) for scale in (1.0, 2.0) for seed in (42, 43)
    ]
    assert table["activation_std"] == result.values.reshape(-1).tolist()
    assert result.values.shape == (2, 2, 2)
    result.save(tmp_path / "map.parquet")
    from pyarrow import parquet

    assert parquet.read_table(tmp_path / "map.parquet").to_pydict() == table


def test_a_stack_has_the_same_bits_wherever_it_is_computed():
    """Alone, in another order, and beside other stacks: the tasks of a sweep change no bit."""
    plan = read_sweep(NET, ["scale=0.5:2:40", "depth=2,3,4"], 2)
    whole = run_sweep(plan).values.reshape(-1)
    for stack in reversed(plan.stacks):
        assert stack.job().values().tobytes() == whole[stack.cells].tobytes()


def test_the_explorer_shows_the_loss_of_the_cell_to_the_last_bit():
    """At the fractal border, where 500 steps amplify a last bit until training succeeds instead of diverging."""
    [preset] = (preset for preset in MAP_PRESETS if preset.name == "fractal")
    plan = read_sweep(ModelSpec.from_query(preset.spec), ["scale=log:0.1:0.6:3", "lr=log:1.1:1.4:3"], 1, "loss")
    values = run_sweep(plan).values.reshape(-1)
    for cell, value in enumerate(values.tolist()):
        assert Retracer().trace(plan.spec_of(cell)).loss == pytest.approx(value, rel=0, abs=0, nan_ok=True)


def test_a_cell_is_replayed_in_its_stack_to_the_last_bit():
    spec = NET.replace(step=40, lr=0.05, widths=(10, 10, 10, 1))
    result = sweep(spec, ["scale=0.5:2:9", "depth=2,3"], seeds=2, measure="loss")
    ratio = sweep(spec, ["scale=0.5:2:9", "depth=2,3"], seeds=2, measure="loss_ratio")
    for cell in (0, 7, 35):
        losses = result.replay(cell)
        assert losses.shape == (41,)
        assert losses[-1] == result.values.reshape(-1)[cell]
        assert losses[-1] / losses[0] == ratio.values.reshape(-1)[cell]
