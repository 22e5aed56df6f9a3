# SPDX-License-Identifier: MIT
"""The original package's eight examples, unchanged, on ours; and its consumers and producers across from
ours. On a GPU, where somebody has the original: CUDALINK_ORIGINAL names the folder of its package
`cuda_link`, and `examples` lies in that folder's parent. The original looks for `cudart64_12.dll`, on Linux
too: LD_LIBRARY_PATH has to have a folder in which a link of that name leads to libcudart.so.12."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import cuda_link
import pytest

pytestmark = [
    pytest.mark.requires_cuda,
    pytest.mark.alone,  # their demo producers run for a few seconds, however slow the rest is
    pytest.mark.skipif(os.environ.get("CUDALINK_PYTHON_GPU") != "real", reason="needs a GPU"),
    pytest.mark.skipif(
        not os.environ.get("CUDALINK_ORIGINAL"), reason="needs the original package (CUDALINK_ORIGINAL)"
    ),
]

LIMIT = 150  # seconds
THEIRS = os.environ.get("CUDALINK_ORIGINAL", "")
NAMES = str(Path(__file__).with_name("original_names"))
OURS = os.pathsep.join([NAMES, str(Path(cuda_link.__file__).parent.parent)])
EXAMPLES = Path(THEIRS).parent / "examples"
PRODUCER = """
import sys
sys.path.insert(0, sys.argv[2])
import _common
_common.demo_producer_worker(sys.argv[1], 256, 256, 4, "uint8", 1200, 60.0, 3, 0, False, False)
"""


def start(package: str, *command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *command],
        cwd=EXAMPLES,
        env={**os.environ, "PYTHONPATH": package, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    try:
        output, _ = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    print(output)
    assert process.returncode == 0
    return output


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("01_fake_adapter_tour.py", ""),
        ("02_two_process_roundtrip.py", "SUCCESS"),
        ("03_td_to_pytorch_pipeline.py --frames 200", ""),
        ("04_td_to_opencv_numpy.py --headless --frames 200", ""),
        ("05_multi_stream_and_dynamic_resolution.py", ""),
        ("06_graceful_shutdown_and_reconnect.py", "survived 2/2"),
        ("07_python_to_td_exporter_and_benchmark.py", "{'PUBLISHED': 300}"),
        ("08_low_cpu_doorbell_consumer.py", ""),
    ],
)
def test_original_example(script, says):
    assert says in finish(start(OURS, *script.split()))


@pytest.mark.parametrize("script", ["04_td_to_opencv_numpy.py --headless", "03_td_to_pytorch_pipeline.py"])
@pytest.mark.parametrize("way", ["theirs to ours", "ours to theirs"])
def test_original_across(way, script):
    exporting, importing = (THEIRS, OURS) if way == "theirs to ours" else (OURS, THEIRS)
    name = f"cudalink_across_{os.getpid()}"
    producer = start(exporting, "-c", PRODUCER, name, str(EXAMPLES))
    try:
        options = f"--no-demo-producer --shm-name {name} --width 256 --height 256 --frames 200"
        finish(start(importing, *script.split(), *options.split()))
        finish(producer)
    finally:
        producer.kill()
