"""A stack of nets on CUDA."""

import numpy as np
import pytest

from chainrule.spec import ModelSpec
from chainrule.sweeps.run import sweep

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("measure", ["gradient_ratio", "loss", "accuracy", "steps_to_loss:1", "largest_lr"])
def test_a_sweep_on_cuda_has_the_values_of_the_cpu(measure):
    spec = ModelSpec.from_query("widths=2,16,16,2&data=moons&batch=32&step=20&dtype=float64&activation=tanh")
    over = ["scale=0.5:2:4", "lr=log:0.01:1:3"]
    here = sweep(spec, over, seeds=2, measure=measure).values
    there = sweep(spec.replace(device="cuda"), over, seeds=2, measure=measure).values
    np.testing.assert_allclose(there, here, rtol=1e-6)
