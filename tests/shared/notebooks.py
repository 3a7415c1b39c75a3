"""Notebooks in a real kernel."""

import sys

import nbformat
import pytest
from nbclient import NotebookClient


def execute(cells, folder):
    """The outputs of the cells, run in a folder without the user's settings, profiles and history."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    with pytest.MonkeyPatch.context() as patch:
        for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
            patch.setenv(name, str(folder / name.lower()))
        for left in (2, 1, 0):
            client = NotebookClient(notebook, timeout=100, resources={"metadata": {"path": str(folder)}})
            client.create_kernel_manager()
            client.km.kernel_spec.argv[0] = sys.executable
            try:
                client.execute()
                break
            except RuntimeError as error:
                # Jupyter names ports to the kernel that it has let go of: another process may be faster to take them.
                if "Kernel died" not in str(error) or not left:
                    raise
    nbformat.validate(notebook)
    return [cell.outputs for cell in notebook.cells]
