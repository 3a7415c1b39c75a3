"""The compilation, a process of its own: `python -m … FOLDER [--cuda] [--verbose]`.

Leaves FOLDER/chainrule_linear.so, which it has loaded once to see that it loads. Where that fails it says why on
standard error and ends with 1.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

from chainrule.foundations.linear_extension.library import FLAGS, NAME, sources


def compile_extension(folder: str, *, cuda: bool, verbose: bool) -> None:
    """Compile and load the extension with torch's own tools, in a folder that is there.

    Raises:
        ImportError: setuptools is missing, or what was compiled does not load.
        RuntimeError: the compiler failed; the message is what it said.
    """
    from torch.utils import cpp_extension

    define = ["-DWITH_CUDA"] if cuda else []
    cpp_extension.load(
        name=NAME,
        sources=[str(path) for path in sources(cuda=cuda)],
        extra_cflags=[*FLAGS, *define],
        extra_cuda_cflags=[*FLAGS, *define],
        build_directory=folder,
        with_cuda=cuda,
        verbose=verbose,
    )


def main() -> int:
    """Compile as the command line says; 0 where that went well."""
    parser = argparse.ArgumentParser(description="Compile the C++ extension.")
    parser.add_argument("folder")
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    given = parser.parse_args()
    try:
        compile_extension(given.folder, cuda=given.cuda, verbose=given.verbose)
    except ModuleNotFoundError as error:
        print(f"{error}: pip install setuptools" if error.name == "setuptools" else error, file=sys.stderr)
        return 1
    except (RuntimeError, ImportError, OSError, subprocess.SubprocessError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
