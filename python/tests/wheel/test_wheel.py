#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The package as pip makes and installs it: a wheel, `pip install .`, an editable installation; each from a
copy of the tracked files, into fresh environments. Needs PyPI for the build's requirements."""

from __future__ import annotations

import base64
import csv
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BUILD_LIMIT = 600  # seconds; compiling takes half a minute of an idle machine
LIBC = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2"}
OLDEST = (2, 34)  # of glibc
EXTRAS = {"numpy", "torch", "cupy", "cupy13", "jax", "nvml", "all", "dev"}
COPIED = ("pyproject.toml", "meson.build", "meson_options.txt", "README.md", "CHANGELOG.md", "LICENSE")
FOLDERS = ("bench", "docs", "examples", "include", "python", "scripts", "src", "tests", "tools")

pytestmark = pytest.mark.slow


def free_threaded() -> str | None:
    """A Python without a GIL that can build: CUDALINK_FREE_THREADED_PYTHON, or one of the PATH."""
    names = [os.environ.get("CUDALINK_FREE_THREADED_PYTHON"), "python3.14t", "python3.13t"]
    for place in filter(None, map(shutil.which, filter(None, names))):
        asked = [place, "-c", "import sys; assert not sys._is_gil_enabled()"]
        if subprocess.run(asked, capture_output=True).returncode == 0:
            return place
    return None


def run(*command: object, **variables: str) -> str:
    """Runs a command elsewhere than in the sources. Returns what it printed."""
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **variables}
    for name in ("PYTHONPATH", "CUDALINK_PYTHON_BACKEND", "CUDALINK_LIBRARY", "LD_LIBRARY_PATH"):
        if name not in variables:
            environment.pop(name, None)
    with tempfile.TemporaryDirectory() as elsewhere:
        ended = subprocess.run(
            [str(word) for word in command],
            capture_output=True,
            text=True,
            timeout=BUILD_LIMIT,
            cwd=elsewhere,
            env=environment,
        )
    assert ended.returncode == 0, f"{command}\n{ended.stdout[-3000:]}\n{ended.stderr[-3000:]}"
    return ended.stdout


def environment(directory: Path) -> Path:
    """A fresh virtual environment. Returns its Python."""
    run(sys.executable, "-m", "venv", directory)
    return directory / "bin" / "python"


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The sources, without what was built in them."""
    copy = tmp_path_factory.mktemp("source")
    for name in COPIED:
        shutil.copy(ROOT / name, copy / name)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """The Python of an environment with nothing in it but pip."""
    return environment(tmp_path_factory.mktemp("environment") / "env")


@pytest.fixture(scope="module")
def wheel(source, python, tmp_path_factory):
    """The wheel, and a folder with what is in it."""
    directory = tmp_path_factory.mktemp("wheel")
    run(python, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", directory, source)
    (made,) = directory.glob("*.whl")
    with zipfile.ZipFile(made) as archive:
        archive.extractall(directory / "inside")
    return made, directory / "inside"


def binaries(inside: Path) -> list[Path]:
    files = [path for path in (inside / "cuda_link").iterdir() if path.is_file()]
    return [path for path in files if path.read_bytes()[:4] == b"\x7fELF"]


def test_its_name_and_what_is_in_it(wheel):
    made, inside = wheel
    assert re.fullmatch(r"cuda_link-[\d.]+-cp311-abi3-linux_\w+\.whl", made.name)
    names = {path.name for path in (inside / "cuda_link").iterdir()}
    assert {"libcudalink.so.0", "_core.abi3.so", "__init__.py", "py.typed"} <= names
    assert {path.name for path in inside.iterdir()} - {"cuda_link"} == {
        made.name.split("-cp")[0] + ".dist-info"
    }
    there = {path.name for path in (ROOT / "python" / "cuda_link").rglob("*.py")}
    assert there <= {path.name for path in (inside / "cuda_link").rglob("*.py")}, "missing in a meson.build"


def test_its_extras(wheel):
    (metadata,) = wheel[1].glob("*.dist-info/METADATA")
    assert set(re.findall(r"^Provides-Extra: (.*)$", metadata.read_text(), re.M)) == EXTRAS
    assert not re.search(r"^Requires-Dist: [^;]*$", metadata.read_text(), re.M), "nothing is required"


@pytest.mark.skipif(not shutil.which("readelf"), reason="readelf is not installed")
def test_it_needs_libc_only(wheel):
    for path in binaries(wheel[1]):
        shown = subprocess.run(
            ["readelf", "--wide", "-d", "--dyn-syms", path], check=True, capture_output=True, text=True
        ).stdout
        needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", shown))
        assert needed - LIBC <= {"libcudalink.so.0"}, path.name
        assert set(re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", shown)) <= {"$ORIGIN"}, path.name
        versions = {(int(a), int(b)) for a, b in re.findall(r"GLIBC_(\d+)\.(\d+)", shown)}
        print(f"{path.name}: glibc {max(versions)[0]}.{max(versions)[1]} or later, needs {sorted(needed)}")
        assert max(versions) <= OLDEST, f"{path.name} would not load where glibc is older"


def platform_tag(made: Path) -> str:
    """As the file and what is in it say; they must say the same."""
    with zipfile.ZipFile(made) as archive:
        (inside,) = [name for name in archive.namelist() if name.endswith(".dist-info/WHEEL")]
        tags = re.findall(r"^Tag: (\S+)", archive.read(inside).decode(), re.M)
    assert [made.name.split("-", 2)[2]] == [f"{tag}.whl" for tag in tags]
    return tags[0].split("-")[2]


def check_record(made: Path) -> None:
    """Each file is in RECORD, with its size and its hash."""
    with zipfile.ZipFile(made) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/RECORD")]
        told = {row[0]: row[1:] for row in csv.reader(archive.read(name).decode().splitlines())}
        assert set(told) == {file for file in archive.namelist() if not file.endswith("/")}
        for file in set(told) - {name}:
            data = archive.read(file)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert told[file] == [f"sha256={digest}", str(len(data))], file


def test_its_record_and_its_licence(wheel):
    made, inside = wheel
    check_record(made)
    (licence,) = inside.glob("*.dist-info/licenses/LICENSE")
    assert licence.read_bytes() == (ROOT / "LICENSE").read_bytes()


# They come from PyPI and build a wheel more: `make wheel` always does that, the tests where they are there.
audited = pytest.mark.skipif(not shutil.which("auditwheel"), reason="auditwheel is not installed")


@pytest.fixture(scope="module")
def released(source, tmp_path_factory):
    """A folder of wheels as `make wheel` makes them, and what the auditors said: one with the limited API,
    and a free-threaded one where there is such a Python."""
    directory = tmp_path_factory.mktemp("released")
    pythons = [sys.executable, *filter(None, [free_threaded()])]
    return directory, run(source / "scripts" / "build-wheels", directory, *pythons)


@audited
def test_what_auditors_say(released, python):
    """PyPI takes no wheel tagged linux_x86_64; a tag older than this one would promise too much."""
    directory, said = released
    (made,) = directory.glob("*-abi3-*.whl")
    assert re.fullmatch(rf"manylinux_{OLDEST[0]}_{OLDEST[1]}_\w+", platform_tag(made)), made.name
    assert f"{made.name}: OK" in said and "PASSED" in said
    check_record(made)
    run(python, "-m", "pip", "install", "--force-reinstall", made)
    check_installed(python)


THREADS_ONLY = "import sys, cuda_link; assert not sys._is_gil_enabled(); print(cuda_link.backend.name)"


@audited
def test_a_wheel_of_a_free_threaded_python(released, tmp_path):
    """It holds an extension of its own, which leaves the GIL off."""
    chosen = free_threaded()
    if chosen is None:
        pytest.skip("needs a free-threaded Python")
    (made,) = released[0].glob("*t-manylinux*.whl")
    assert re.fullmatch(r"cuda_link-[\d.]+-cp(3\d+)-cp\1t-manylinux_2_34_\w+\.whl", made.name)
    run(chosen, "-m", "venv", "--without-pip", tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    pip = released[0] / "tools" / "bin" / "pip"  # Debian's is too old for that Python
    run(pip, "--python", python, "install", "--no-deps", made)
    assert run(python, "-W", "error", "-c", THREADS_ONLY) == "core\n"


WHICH = "import cuda_link; print(cuda_link.backend.name)"


def check_installed(python: Path) -> None:
    """Both back ends, and the program by both its names."""
    for name in ("core", "pure"):
        assert run(python, "-W", "error", "-c", WHICH, CUDALINK_PYTHON_BACKEND=name) == f"{name}\n"
    with tempfile.TemporaryDirectory() as directory:
        shown = run(python, "-m", "cuda_link", "demo", CUDALINK_RUNTIME_DIR=directory, PATH="/usr/bin:/bin")
    assert "frames" in shown
    version = run(python, "-c", "import cuda_link; print(cuda_link.__version__)").strip()
    assert f"cudalink {version}" in run(python.parent / "cudalink", "--version", PATH="/usr/bin:/bin")


def test_pip_install(wheel, python):
    """`pip install .` is this: it makes that wheel in the same way, and installs it."""
    run(python, "-m", "pip", "install", "--force-reinstall", wheel[0])
    check_installed(python)
    assert "numpy" not in run(python, "-m", "pip", "list"), "nothing else was installed"


def test_editable_with_what_developers_need(source, tmp_path):
    python = environment(tmp_path / "env")
    # Not optimised, so that it compiles in a fifth of the time: what the options give is seen in the wheel.
    quick = "--config-settings=setup-args=-Doptimization=0"
    run(python, "-m", "pip", "install", quick, "-e", f"{source}[dev]")
    check_installed(python)
    where = run(python, "-c", "import cuda_link; print(cuda_link.__file__)")
    assert Path(where.strip()).is_relative_to(source)
    for tool in ("pytest", "ruff", "mypy"):
        run(python, "-m", tool, "--version")


def reason_to_skip() -> str:
    """Why this can't run here; one of tests/skip-reasons.txt."""
    try:
        import ensurepip  # noqa: F401
    except ImportError:
        return "needs python3-venv"
    with tempfile.TemporaryDirectory() as directory:
        python = environment(Path(directory) / "env")
        command = [python, "-m", "pip", "download", "-q", "--no-deps", "--retries", "0", "-d", directory]
        ended = subprocess.run([*command, "meson-python"], capture_output=True)
    return "" if ended.returncode == 0 else "needs PyPI"


if __name__ == "__main__":
    reason = reason_to_skip()
    if reason:
        print(f"skip: {reason}")
        sys.exit(77)
    sys.exit(pytest.main([*sys.argv[1:], str(Path(__file__).resolve())]))
