"""Compile the C files, bundle the page's scripts and build the guide while the package is built.

A wheel gets them inside and is tagged for the platform; an editable installation gets what is compiled beside the C
files, and the bundles and the guide where the wheel has them. Without it or the bundles the package is slower; without
the guide `/guide` says how to build it. C needs a compiler: the one that `CC` names, else the one that made the
interpreter or the system's. It needs the interpreter's headers, and keeps to the stable ABI of CPython 3.11, so that
one serves all later versions.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags

SOURCES = {
    Path("app/chainrule/stats/_kernel.c"): "The statistics kernel was not compiled, PyTorch will do its work",
    Path("app/chainrule/trace/_observer.c"): "The observer was not compiled, Python will do its work",
}
"""The C files, and what is said if one cannot be compiled."""
BUNDLES = Path("app/chainrule/page/bundled")
GUIDE = Path("app/chainrule/page/guide")
# Nothing that lets the compiler assume numbers to be finite, nor (-Ofast) make the processor flush denormals at load.
FLAGS = (
    "-std=c11 -O3 -fPIC -pthread -fvisibility=hidden "
    "-fopenmp-simd -ffp-contract=fast -fno-trapping-math -fno-math-errno"
).split()
LINK = ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared"]


def read_command(name: str, text: str) -> list[str]:
    """The words of a compiler's command, as a shell reads them.

    Raises:
        ValueError: there are none, or a quotation does not end.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"{name}={text!r} cannot be read: {error}") from None
    if not words or not words[0]:
        raise ValueError(f"{name}={text!r} names no compiler")
    return words


def compilers() -> list[list[str]]:
    """The commands to try, in order.

    Raises:
        ValueError: `CC` names none, or the interpreter's names none and the system has no other.
    """
    if os.environ.get("CC"):
        return [read_command("CC", os.environ["CC"])]
    found = [[name] for name in ("cc", "gcc", "clang") if shutil.which(name)]
    try:
        own = read_command("sysconfig's CC", sysconfig.get_config_var("CC") or "")
    except ValueError:
        if found:
            return found
        raise
    return [own, *found] if shutil.which(own[0]) else found


def compile_extension(source: Path, target: Path) -> str | None:
    """Compile `source` into `target`, which is replaced in one step; say why if that cannot be done."""
    if os.name != "posix":
        return "the kernel is written for GCC and Clang"
    try:
        commands = compilers()
    except ValueError as error:
        return f"there is no C compiler: {error}"
    failures = []
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    for compiler in commands:
        made = target.with_name(f".{target.name}.{os.getpid()}")
        command = [*compiler, *FLAGS, f'-DSOURCE="{digest}"', f"-I{sysconfig.get_path('include')}"]
        command += [os.fspath(source), *LINK, "-o", os.fspath(made), "-lm"]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
            made.replace(target)
        except OSError as error:
            failures.append(f"{compiler[0]}: {error}")
        except subprocess.CalledProcessError as error:
            failures.append(f"{compiler[0]}: {error.stderr.strip() or f'exit status {error.returncode}'}")
        else:
            return None
        finally:
            made.unlink(missing_ok=True)
    return "\n".join(failures) or "there is no C compiler"


def platform_tag() -> str:
    """AUDITWHEEL_PLAT, see `make wheels`; else `linux_x86_64`: for machines like this one, without a promise."""
    own = next(tag.platform for tag in sys_tags() if not tag.platform.startswith(("manylinux", "musllinux")))
    return os.environ.get("AUDITWHEEL_PLAT") or own


def bundle_scripts(root: Path, folder: Path) -> str | None:
    """Bundle the page's scripts into a folder; say why if that cannot be done."""
    # In a process of its own, of the package that is being built, and not of one that is installed.
    command = [sys.executable, "-m", "chainrule.page.bundles", os.fspath(folder)]
    environment = {**os.environ, "PYTHONPATH": os.fspath(root / "app")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=root)
    return None if done.returncode == 0 else done.stderr.strip() or f"exit status {done.returncode}"


def build_guide(root: Path, folder: Path) -> str | None:
    """Build the documents into a folder; say why if that cannot be done."""
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", os.fspath(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root)
    for path in folder.glob("sitemap.xml*"):
        path.unlink()  # it has the time of the build; two wheels of the same files are the same
    return None if done.returncode == 0 else done.stderr.strip() or f"exit status {done.returncode}"


class BuildHook(BuildHookInterface[Any]):
    """Adds the kernel and the bundles to a wheel, or puts them into `app/` where the installation is editable."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile and bundle; `version` is `standard` or `editable`."""
        self._folder = tempfile.TemporaryDirectory()
        editable = version == "editable"
        for path, otherwise in SOURCES.items():
            source = Path(self.root, path)
            name = path.with_suffix(".abi3.so").relative_to("app")
            target = source.with_name(name.name) if editable else Path(self._folder.name, name.name)
            failure = compile_extension(source, target)
            if failure is not None:
                self.app.display_warning(f"{otherwise}: {failure}")
                target.unlink(missing_ok=True)  # what an earlier build left is of another source, perhaps
            elif not editable:
                build_data["pure_python"] = False
                build_data["tag"] = f"cp311-abi3-{platform_tag()}"
                build_data["force_include"][os.fspath(target)] = name.as_posix()

        bundles = Path(self.root, BUNDLES) if editable else Path(self._folder.name, BUNDLES.name)
        failure = bundle_scripts(Path(self.root), bundles)
        if failure is not None:
            self.app.display_warning(f"The page's scripts were not bundled, each will be a request: {failure}")
        elif not editable:
            (bundles / "DIGEST").unlink()  # of the times of a checkout; nobody edits what is installed
            build_data["force_include"][os.fspath(bundles)] = BUNDLES.relative_to("app").as_posix()

        guide = Path(self.root, GUIDE) if editable else Path(self._folder.name, GUIDE.name)
        failure = build_guide(Path(self.root), guide)
        if failure is not None:
            self.app.display_warning(f"The guide was not built: {failure}")
        elif not editable:
            build_data["force_include"][os.fspath(guide)] = GUIDE.relative_to("app").as_posix()

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """Remove what was compiled: the wheel has it."""
        self._folder.cleanup()
