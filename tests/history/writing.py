"""A process that writes a run until it is killed, and prints each step that it has committed."""

import itertools
import sys

import numpy as np

from chainrule.history import RunWriter

path, limit = sys.argv[1], int(sys.argv[2])
tensors = [(f"layer {number}", part) for number in range(4) for part in ("activation", "weight")]
writer = RunWriter(path, ["mean", "norm"], model="test", limit=limit)
for step in itertools.count():
    figures = np.full((len(tensors), 2), float(step))
    writer.add_step(step, loss=1 / (1 + step))
    writer.add_rows(step, tensors, figures, np.full((len(tensors), 64), step, np.uint32))
    if step % 20 == 7:
        writer.flush()
        print(step, flush=True)
