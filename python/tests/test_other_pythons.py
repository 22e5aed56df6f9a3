# SPDX-License-Identifier: MIT
"""The ctypes back end on the other Pythons of this machine, on the PATH or pyenv's: whether the oldest and
the newest can read the package, and whether its frames arrive. None of them needs NumPy."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import cuda_link
import pytest
from conftest import LIMIT

VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
PACKAGE = Path(cuda_link.__file__).parent

SMOKE = """
import array, asyncio, ctypes, importlib, multiprocessing, pathlib, sys, tempfile
import cuda_link
from cuda_link import _abi

assert cuda_link.backend.name == "pure", cuda_link.backend
package = pathlib.Path(cuda_link.__file__).parent
for path in sorted(package.rglob("*.py")):
    if path.parent.name in ("cuda_link", "_known") and path.name != "__main__.py":
        name = ".".join(path.relative_to(package.parent).with_suffix("").parts)
        importlib.import_module(name.replace(".__init__", ""))

with cuda_link.open_exporter("smoke", shape=(2, 3), dtype="float32", kind="host", user_size=4) as exporter:
    importer = cuda_link.open_importer("smoke", timeout=10, hold=4)
    exporter.send(memoryview(array.array("f", range(6))).cast("B").cast("f", (2, 3)), user=b"user")
    with importer.acquire(10) as frame:
        assert (frame.shape, frame.dtype, frame.user, frame.writable()) == ((2, 3), "float32", b"user", False)
        assert frame.buffer().tolist() == [[0, 1, 2], [3, 4, 5]]
        whole = cuda_link.from_dlpack(frame)
        assert whole[1, ::2].copy().buffer().tolist() == [3, 5]
        assert cuda_link.from_dlpack(frame.__dlpack__(max_version=(1, 0)), copy=True).writable
        kept = frame.copy()
    del whole
    with exporter.frame(shape=(4,), dtype="uint8") as slot:
        slot.buffer()[:] = b"abcd"
    with asyncio.run(importer.next(10)) as frame:
        assert frame.packed() == b"abcd" and kept.packed()[4:8] == b"\\0\\0\\x80\\x3f"
    assert [channel.name for channel in cuda_link.channels()] == ["smoke"]
    for wrong in (lambda: importer.acquire("x"), lambda: exporter.send([1])):
        try:
            wrong()
        except TypeError:
            continue
        raise AssertionError("no error")
    importer.close()

queue = cuda_link.Queue(2)
queue.put({"a": bytes(5000)})
assert queue.get(timeout=10) == {"a": bytes(5000)}

# The end of a spawned process says goodbye: what it does not wait for is lost without a word.
with tempfile.TemporaryDirectory() as folder:
    pathlib.Path(folder, "putter.py").write_text(
        "def put(queue):\\n    queue.put(bytes(100000)); queue.put('small'); queue.cancel_join_thread()\\n"
    )
    sys.path.insert(0, folder)
    from putter import put
    process = multiprocessing.get_context("spawn").Process(target=put, args=(queue,))
    process.start()
    process.join()
    assert process.exitcode == 0 and queue.get(timeout=10) == "small"
queue.close()

pixels = (ctypes.c_ubyte * 64)(*range(64))
with cuda_link.Exporter.open(cuda_link.FrameSpec("known", height=4, width=4)) as exporter:
    with cuda_link.Importer.open(cuda_link.ImportSpec("known")) as importer:
        sent = cuda_link.GpuFrame(ctypes.addressof(pixels), 64, 0)
        assert exporter.export(sent) is cuda_link.FrameOutcome.PUBLISHED
        assert importer.wait_for_doorbell(10000) and exporter.get_stats()["frame_count"] == 1
print("fine on", *sys.version_info[:2])
"""


@functools.cache
def found(version: str) -> str | None:
    """One that runs: what pyenv puts on the PATH may not."""
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    places = [shutil.which(f"python{version}")]
    with contextlib.suppress(OSError):  # somebody else's folder
        places += root.glob(f"versions/{version}.*/bin/python{version}")
    for place in filter(None, places):
        ran = subprocess.run([place, "-c", "import ctypes"], capture_output=True, timeout=LIMIT)
        if ran.returncode == 0:
            return str(place)
    return None


@pytest.mark.skipif(cuda_link.backend.name != "pure", reason="the C extension is one Python's own")
@pytest.mark.parametrize("version", VERSIONS)
def test_the_package_works_on(version):
    python = found(version)
    if python is None:
        pytest.skip(f"needs Python {version}")
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "CUDALINK_PYTHON_BACKEND": "pure"}
    ran = subprocess.run(
        [python, "-B", "-W", "error", "-c", SMOKE],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env=environment,
    )
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
    assert ran.stdout.split() == ["fine", "on", *version.split(".")]


def test_the_oldest_python_is_the_one_that_is_promised():
    """`make lint` looks at the syntax for it: ruff's target-version."""
    text = next(
        parent / "pyproject.toml" for parent in Path(__file__).parents if (parent / "pyproject.toml").exists()
    ).read_text()
    assert f'requires-python = ">={VERSIONS[0]}"' in text
    assert f'target-version = "py{VERSIONS[0].replace(".", "")}"' in text
    assert sys.version_info >= tuple(map(int, VERSIONS[0].split(".")))
