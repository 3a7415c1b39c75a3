"""Requirements at a bound of what pyproject.toml allows: `python tests/shared/bounds.py lowest` or `newest`.

PyTorch stays as in constraints.txt, and with it sympy: `make test-torch` covers other versions.
"""

import sys
import tomllib
from pathlib import Path

EXTRAS = ("render", "pandas", "parquet", "tensorboard", "digits")
FIXED = ("torch", "sympy")

ROOT = Path(__file__).parents[2]


def requirements(bound):
    """A requirement per line, for pip."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    allowed = [*project["dependencies"], *(each for name in EXTRAS for each in extras[name])]
    pinned = [line for line in (ROOT / "constraints.txt").read_text().split() if line.startswith(f"{FIXED[0]}==")]
    moving = [each for each in allowed if not each.startswith(FIXED)]
    return [*pinned, *(each.replace(">=", "==") if bound == "lowest" else each for each in moving)]


if __name__ == "__main__":
    print("\n".join(requirements(sys.argv[1])))
