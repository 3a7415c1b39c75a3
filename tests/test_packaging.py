import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from platform import libc_ver

import httpx
import pytest

import chainrule

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[1]


def build(kind, root, folder, **environment):
    """The file that `python -m build` makes of a project, and its output."""
    answer = subprocess.run(
        [sys.executable, "-m", "build", kind, "--no-isolation", "--outdir", folder, root],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | environment,
    )
    (built,) = folder.iterdir()
    return built, answer.stdout + answer.stderr


def install(wheel, folder):
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", folder, wheel],
        check=True,
        capture_output=True,
    )
    return folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build("--wheel", ROOT, tmp_path_factory.mktemp("dist"))[0]


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A folder with the contents of the wheel alone."""
    return install(wheel, tmp_path_factory.mktemp("site-packages"))


@pytest.fixture(scope="module")
def compiles(tmp_path_factory):
    """Whether this machine has a C compiler and the headers of its Python."""
    source = tmp_path_factory.mktemp("probe") / "probe.c"
    source.write_text("#include <Python.h>\n")
    compiler = next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    command = [compiler, "-fsyntax-only", f"-I{sysconfig.get_path('include')}", source]
    return compiler is not None and subprocess.run(command, check=False, capture_output=True).returncode == 0


@pytest.fixture
def checkout(tmp_path):
    """A copy of the project whose kernel is compiled in no time."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    for name in ("app", "static", "templates", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.so", "bundled"))
    for name in (
        "pyproject.toml",
        "mkdocs.yml",
        "hatch_build.py",
        "README.md",
        "CHANGELOG.md",
        "LICENSE",
        ".gitignore",
    ):
        shutil.copy(ROOT / name, folder)
    for name in EXTENSIONS:
        (folder / "app" / f"{name}.c").write_text(small(name))
    return folder


EXTENSIONS = ("chainrule/stats/_kernel", "chainrule/trace/_observer")


def small(extension):
    """A C file that is compiled in no time."""
    return SMALL.replace("NAME", extension.rpartition("/")[2])


SMALL = """
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "NAME", .m_size = -1};
PyMODINIT_FUNC PyInit_NAME(void) {
    PyObject *made = PyModule_Create(&module);
    if (made != NULL) PyModule_AddStringConstant(made, "SOURCE", SOURCE);
    return made;
}
"""


def build_editable(checkout, **environment):
    """Install the checkout editable; gives the folder of its packages."""
    code = "import sys; from hatchling.build import build_editable; build_editable(sys.argv[1])"
    wheels = checkout.parent / "editable"
    wheels.mkdir(exist_ok=True)
    subprocess.run(
        [sys.executable, "-c", code, wheels],
        cwd=checkout,
        check=True,
        capture_output=True,
        env=os.environ | environment,
    )
    return checkout / "app"


def run_code(folder, code):
    with run_installed(folder, folder, "-c", code) as process:
        said = process.stdout.read()
    assert process.returncode == 0
    return said.split()


WHICH_KERNEL = """
import torch
from chainrule import ModelSpec, trace_spec
from chainrule.stats import kernel_name
from chainrule.trace.native import observer
trace = trace_spec(ModelSpec.from_query("widths=9,5,1&seed=1"))
print(kernel_name(), observer is not None, len(trace.statistics), trace.statistics[trace.tensors[0].id].n)
"""


def run_installed(installed, folder, *command):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CHAINRULE_")}
    environment |= {"PYTHONPATH": str(installed), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen([sys.executable, *command], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)


def names_in(wheel):
    return zipfile.ZipFile(wheel).namelist()


def files_below(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_the_wheel_holds_the_package_its_page_and_nothing_else(wheel):
    names = names_in(wheel)
    assert {f"chainrule/static/{name}" for name in files_below(ROOT / "static")} <= set(names)
    assert {f"chainrule/templates/{name}" for name in files_below(ROOT / "templates")} <= set(names)
    kinds = (".py", "py.typed", "linear.h", "linear.cpp", "linear_cuda.cu")
    sources = {name for name in files_below(ROOT / "app" / "chainrule") if name.endswith(kinds)}
    assert len(sources) > 100
    assert {f"chainrule/{name}" for name in sources} <= set(names)
    assert {name.split("/")[0] for name in names} == {"chainrule", f"chainrule-{chainrule.__version__}.dist-info"}
    assert not [name for name in names if name.endswith(".pyc") or "/tests/" in name]
    folder = f"chainrule-{chainrule.__version__}.dist-info"
    metadata = zipfile.ZipFile(wheel).read(f"{folder}/METADATA").decode()
    assert "\nRequires-Python: >=3.11\n" in metadata
    assert "\nProvides-Extra: render\nRequires-Dist: mini-racer" in metadata


@pytest.fixture(scope="module")
def traced(installed):
    return run_code(installed, WHICH_KERNEL)


def test_the_wheel_holds_what_is_compiled_if_there_is_a_compiler(wheel, traced, compiles):
    names = names_in(wheel)
    for extension in EXTENSIONS:
        assert (f"{extension}.abi3.so" in names) == compiles
        assert f"{extension}.c" not in names
    python, abi, platform = wheel.stem.split("-")[2:]
    if compiles:
        assert (python, abi) == ("cp311", "abi3")
        assert platform.startswith(sysconfig.get_platform().split("-")[0])
    else:
        assert (python, abi, platform) == ("py3", "none", "any")
    assert traced[:2] == (["native", "True"] if compiles else ["torch", "False"])


def test_what_is_compiled_needs_no_glibc_after_2_17(wheel, compiles):
    """`make wheels` promises it by the tag of its wheels."""
    if not compiles or libc_ver()[0] != "glibc":
        return
    with zipfile.ZipFile(wheel) as opened:
        compiled = b"".join(opened.read(f"{extension}.abi3.so") for extension in EXTENSIONS)
    needed = {tuple(map(int, version.split(b"."))) for version in re.findall(rb"GLIBC_([0-9.]+)", compiled)}
    assert needed
    assert max(needed) <= (2, 17)


def test_without_a_compiler_the_wheel_is_pure_and_pytorch_takes_the_statistics(tmp_path, traced):
    wheel, said = build("--wheel", ROOT, tmp_path / "dist", CC="/bin/false")
    assert "kernel was not compiled" in said
    assert "observer was not compiled" in said
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not [name for name in names_in(wheel) if name.endswith((".so", ".c"))]
    pure = run_code(install(wheel, tmp_path / "site-packages"), WHICH_KERNEL)
    assert pure[:2] == ["torch", "False"]
    assert pure[2:] == traced[2:]


@pytest.mark.parametrize("extension", EXTENSIONS)
def test_an_editable_installation_puts_what_is_compiled_beside_its_source(extension, checkout, compiles):
    made = build_editable(checkout) / f"{extension}.abi3.so"
    assert made.exists() == compiles
    if compiles:
        name = extension.rpartition("/")[2]
        source = made.with_name(f"{name}.c")
        for addition in ("", "/* changed */"):
            source.write_text(small(extension) + addition)
            build_editable(checkout)
            said = run_code(made.parent, f"import {name}; print({name}.SOURCE)")
            assert said == [hashlib.sha256(source.read_bytes()).hexdigest()]
    # One that can no longer be made does not stay behind.
    build_editable(checkout, CC="/bin/false")
    assert not made.exists()
    assert not list(made.parent.glob(".*"))


def test_an_editable_installation_bundles_the_pages_files(checkout):
    build_editable(checkout, CC="/bin/false")
    bundled = checkout / "app" / "chainrule" / "page" / "bundled"
    assert "class GraphCamera" in (bundled / "explorer.js").read_text()
    # A module that cannot be bundled leaves the installation without bundles.
    (checkout / "static" / "explorer.js").write_text('import * as all from "./core/dom.js";\n')
    shutil.rmtree(bundled)
    wheel, said = build("--wheel", checkout, checkout.parent / "dist", CC="/bin/false")
    assert "scripts were not bundled, each will be a request: explorer.js: 'import * as all" in " ".join(said.split())
    assert not [name for name in names_in(wheel) if "/bundled/" in name]


def test_a_wheel_has_no_kernel_and_no_bundle_of_another_build(checkout, tmp_path):
    for extension in EXTENSIONS:
        (checkout / "app" / f"{extension}.abi3.so").write_bytes(b"of another machine")
    bundled = checkout / "app" / "chainrule" / "page" / "bundled"
    bundled.mkdir()
    (bundled / "stale.js").write_text("")
    wheel, _ = build("--wheel", checkout, tmp_path / "wheel", CC="/bin/false")
    names = names_in(wheel)
    assert not [name for name in names if name.endswith((".so", "stale.js"))]
    assert "chainrule/page/bundled/explorer.js" in names
    assert "chainrule/page/bundled/DIGEST" not in names, "two wheels of the same files are the same"
    sdist, _ = build("--sdist", checkout, tmp_path / "sdist")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"hatch_build.py", *(f"app/{extension}.c" for extension in EXTENSIONS)} <= names
    assert not [name for name in names if name.endswith(".so") or "/bundled/" in name]


def test_the_installed_server_serves_its_page_from_another_folder(installed, tmp_path):
    with run_installed(installed, tmp_path, "-m", "chainrule", "serve", "--port", "0") as process:
        try:
            lines = iter(process.stdout.readline, "")
            url = next(match[1] for line in lines if (match := re.search(r" is at (http://\S+)", line)))
            with httpx.Client(base_url=url) as client:
                page = client.get("/")
                assert page.status_code == 200
                addresses = set(re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text))
                assert any(address.endswith(".js") for address in addresses)
                assert any(address.endswith(".css") for address in addresses)
                for address in sorted(addresses | {"/docs", "/static/vendor/plotly.min.js"}):
                    answer = client.get(address)
                    assert answer.status_code == 200, address
                    assert ("immutable" in answer.headers["cache-control"]) == (address in addresses), address
                    if address.endswith("/explorer.js"):
                        assert answer.text == (installed / "chainrule/page/bundled/explorer.js").read_text()
        finally:
            process.terminate()
    assert not list(tmp_path.iterdir()), "the server writes nothing where it is started"
