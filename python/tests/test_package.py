# SPDX-License-Identifier: MIT
"""What the package's libraries need: libc, and nothing else."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import cuda_link
import pytest

PACKAGE = Path(cuda_link.__file__).parent
LIBC = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2", "libcudalink.so.0"}
OLDEST = (2, 34)  # of glibc; newer symbols would shut out systems of 2021

pytestmark = pytest.mark.skipif(not shutil.which("readelf"), reason="readelf is not installed")


def readelf(*arguments: str) -> str:
    command = ["readelf", "--wide", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def libraries() -> list[Path]:
    return sorted(path for path in PACKAGE.iterdir() if ".so" in path.name and path.is_file())


def test_the_library_is_in_the_package():
    assert "libcudalink.so.0" in [path.name for path in libraries()]


@pytest.mark.parametrize("path", libraries(), ids=lambda path: path.name)
def test_needs_libc_only(path):
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("-d", str(path))))
    sanitizers = {name for name in needed if re.match(r"lib(a|ub|t)san", name)}
    assert needed - sanitizers <= LIBC
    # Headers of glibc 2.38 and later give strtol this other name: built there, it needs that one.
    symbols = [line for line in readelf("--dyn-syms", str(path)).splitlines() if "__isoc23_" not in line]
    versions = re.findall(r"GLIBC_(\d+)\.(\d+)", "\n".join(symbols))
    newest = max((int(major), int(minor)) for major, minor in versions)
    print(f"{path.name}: glibc {newest[0]}.{newest[1]} or later")
    assert newest <= OLDEST


STABLE = {
    "_PyObject_GC_New",
    "_PyObject_GC_NewVar",
    "_PyObject_New",
    "_Py_Dealloc",
    "_Py_FalseStruct",
    "_Py_NoneStruct",
    "_Py_TrueStruct",
}  # of the stable ABI


def test_symbols_of_the_limited_api_only():
    core = PACKAGE / "_core.abi3.so"
    if not core.exists():
        pytest.skip("built without the extension")
    exported = [line for line in readelf("--dyn-syms", str(core)).splitlines() if "DEFAULT" in line]
    defined = [line.split()[-1] for line in exported if " UND " not in line and "FUNC" in line]
    assert defined == ["PyInit__core"]
    private = {line.split()[-1] for line in exported if " UND " in line and " _Py" in line}
    assert private <= STABLE
