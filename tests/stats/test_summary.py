import math

import pytest
import torch

from chainrule.stats import BINS, StatisticsSlab

pytestmark = pytest.mark.usefixtures("implementation")


def table_of(*tensors):
    slab = StatisticsSlab(capacity=2)
    rows = [slab.take(tensor) for tensor in tensors]
    return slab.table([f"t{10 * row}" for row in rows], rows)


@pytest.mark.smoke
def test_rows_go_by_the_tensors_id_and_columns_by_name():
    table = table_of(torch.tensor([1.0, 3.0]), torch.tensor([math.nan]), torch.zeros(3, dtype=torch.int64))
    assert len(table) == 3
    assert list(table) == ["t0", "t10", "t20"]
    assert "t10" in table
    assert "t1" not in table
    assert table["t0"].mean == 2.0
    assert table["t0"].n == 2
    assert isinstance(table["t0"].n, int)
    assert table.column("mean")[0] == 2.0
    assert math.isnan(table.column("mean")[1])
    assert table.column("zero_fraction").tolist() == [0.0, 0.0, 1.0]
    with pytest.raises(KeyError):
        table["t1"]
    with pytest.raises(ValueError, match="tuple"):
        table.column("median")


def test_a_moment_that_does_not_exist_is_none():
    row = table_of(torch.tensor([math.nan, math.inf]))["t0"]
    assert row.mean is row.std is row.min is row.max is row.norm is None
    assert (row.nan, row.posinf, row.neginf) == (1, 1, 0)
    assert row.dead_fraction is row.saturation is None
    assert row.counts == (0,) * BINS


def test_a_table_cannot_be_written_to():
    table = table_of(torch.ones(2))
    with pytest.raises(ValueError, match="read-only"):
        table.column("mean")[0] = 5.0
    with pytest.raises(ValueError, match="read-only"):
        table.counts[0, 0] = 5
