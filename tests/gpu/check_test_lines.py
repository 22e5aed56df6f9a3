#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check_test_lines.py ROOT

scripts/test-lines finds each test in what the harness, pytest and compute-sanitizer print.
"""
from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

SCRIPT = Path(sys.argv.pop()) / "scripts/test-lines"
HARNESS = """\
gpu_tests: 3 tests, --seed 5 repeats this order
[      OK ] vmm_latest (0.67 s)
[  FAILED ] vmm_next (60.00 s)
  not done in 60 s; process 7, thread 7 (gpu_tests) is in futex_wait
[ SKIPPED ] two_devices (0.12 s)
skip: needs a GPU
1 passed, 1 failed, 1 skipped
"""
PLAIN = """\
python/tests/gpu/test_a.py::test_one PASSED                              [ 50%]
python/tests/gpu/test_a.py::Group::test_two[a b-1] SKIPPED (no GPU)      [100%]
python/tests/gpu/test_a.py::Group::test_two[a b-1] ERROR                 [100%]
FAILED python/tests/gpu/test_a.py::test_one - told again at the end
"""
WORKERS = """\
[gw0] [  1%] PASSED python/tests/gpu/test_a.py::test_one
[gw2] [  2%] FAILED python/tests/gpu/test_a.py::Group::test_two[a b-1] Exception ignored in: <_io.FileIO name='x'>
"""
JUNIT = """\
<testsuites><testsuite><testcase classname="python.tests.gpu.test_a" name="test_one" time="1.5" />
<testcase classname="python.tests.gpu.test_a.Group" name="test_two[a b-1]" time="0.25" /></testsuite></testsuites>
"""
SANITIZED = "[      OK ] vmm_latest (9.10 s)\n========= ERROR SUMMARY: 0 errors\n========= ERROR SUMMARY: 2 errors\n"


def lines_of(output: str, junit: str = "") -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        text, times = Path(folder) / "part.txt", Path(folder) / "junit.xml"
        text.write_text(output, encoding="utf-8")
        if junit:
            times.write_text(junit, encoding="utf-8")
        said = subprocess.run([SCRIPT, "part", "1", "61", text, times], check=True, capture_output=True, text=True)
    return [json.loads(line) for line in said.stdout.splitlines()]


def short(lines: list[dict[str, Any]]) -> list[tuple[str, str, float | None]]:
    return [(line["name"], line["status"], line["seconds"]) for line in lines if line["case"] == "test"]


class TestLines(unittest.TestCase):
    def test_harness(self) -> None:
        lines = lines_of(HARNESS)
        expected = [("vmm_latest", "passed", 0.67), ("vmm_next", "failed", 60.0), ("two_devices", "skipped", 0.12)]
        self.assertEqual(short(lines), expected)
        part = {"case": "part", "what": "part", "status": 1, "seconds": 61, "passed": 1, "failed": 1, "skipped": 1}
        self.assertEqual(lines[-1], part)

    def test_pytest(self) -> None:
        one, two = "python/tests/gpu/test_a.py::test_one", "python/tests/gpu/test_a.py::Group::test_two[a b-1]"
        self.assertEqual(short(lines_of(PLAIN, JUNIT)), [(one, "passed", 1.5), (two, "failed", 0.25)])
        self.assertEqual(short(lines_of(WORKERS, JUNIT)), [(one, "passed", 1.5), (two, "failed", 0.25)])

    def test_ended_early(self) -> None:
        self.assertEqual(short(lines_of(WORKERS))[0][1:], ("passed", None))
        self.assertEqual(short(lines_of(WORKERS, "<testsuites>"))[0][1:], ("passed", None))
        self.assertEqual(len(lines_of("")), 1)

    def test_sanitizer(self) -> None:
        self.assertEqual(lines_of(SANITIZED)[-1]["sanitizer_errors"], 2)


unittest.main()
