#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check_gpu_verdicts.py ROOT

scripts/gpu-verdicts judges results beside the raw calls of their own part; each target is for something
that tests/gpu/measure*.c reports, and there is one list of them: what is judged by it is shown by it.
"""
from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

ROOT = Path(sys.argv.pop())
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True
from gpu_targets import MPS_TARGETS, TARGETS  # noqa: E402

SCRIPT = ROOT / "scripts/gpu-verdicts"
HANDOVER = "kernel end to kernel start, two processes"
QUEUED = "raw: a queued wait for a word"


def result(case: str, what: str, p50: float, most: float = 0) -> dict[str, Any]:
    return {"case": case, "what": what, "unit": "us", "p50": p50, "most": most}


def part(name: str) -> dict[str, Any]:
    return {"case": "part", "what": name, "status": 0, "seconds": 1}


def judged(*lines: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lines.json"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        said = subprocess.run([SCRIPT, path], check=True, capture_output=True, text=True).stdout
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()], said


def tables(old: str, new: str) -> tuple[int, str]:
    """What results-table says of the pages, were the targets other ones."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("README.md", "docs/performance.md", "bench/results", "scripts"):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            (Path(folder) / name).parent.mkdir(exist_ok=True)
            copy(ROOT / name, Path(folder) / name)
        module = Path(folder) / "scripts/gpu_targets.py"
        text = module.read_text(encoding="utf-8")
        assert old in text
        module.write_text(text.replace(old, new), encoding="utf-8")
        command = [Path(folder) / "scripts/results-table", "--check"]
        ended = subprocess.run(command, check=False, capture_output=True, text=True)
        return ended.returncode, ended.stderr


class Verdicts(unittest.TestCase):
    def test_beside_raw(self) -> None:
        name = "publish, 1 consumers"
        for took, ok in ((1.3, True), (1.5, False)):
            lines, said = judged(result(name, "cudalink_exporter_publish", took), result(name, "raw writes", 1.0))
            self.assertEqual((lines[0]["target"], lines[0]["ok"]), (1.4, ok))
            self.assertNotIn("ok", lines[1])
            self.assertEqual(lines[-1], {"case": "targets", "met": int(ok), "of": 1})
            self.assertTrue(said.endswith(f"{int(ok)} of 1 targets met\n"))

    def test_each_part_has_its_own_raw_calls(self) -> None:
        lines, _ = judged(
            result(HANDOVER, "wait_next", 141), result(HANDOVER, QUEUED, 147), part("measure"),
            result(HANDOVER, QUEUED, 14), result(HANDOVER, "wait_next", 16.5), part("mps, measure"),
        )  # fmt: skip
        self.assertEqual((lines[0]["target"], lines[0]["ok"]), (151.41, True))
        self.assertEqual((lines[4]["target"], lines[4]["ok"]), (16, False))

    def test_no_raw_calls_no_verdict(self) -> None:
        lines, said = judged(result(HANDOVER, "wait_next", 141), part("measure"))
        self.assertEqual((len(lines), said), (2, ""))

    def test_the_longest_launch(self) -> None:
        lines, _ = judged(result("launching a kernel meanwhile", "death", 3, most=1200), part("measure"))
        self.assertFalse(lines[0]["ok"])

    def test_names_are_those_of_the_measurements(self) -> None:
        sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests/gpu").glob("measure*.c"))
        names = set()
        for key, rule in [*TARGETS.items(), *MPS_TARGETS.items()]:
            names |= {*key, *(rule["raw"] or ())}
        self.assertGreater(len(names), 15)
        for name in names:
            case, waits, rest = name.partition(" that wait on the GPU")
            self.assertIn(re.sub(r"^publish, \d+ consumers$", "publish, %u consumers", case), sources)
            self.assertIn((waits + rest).strip(), sources)

    def test_the_tables_are_by_the_same_targets(self) -> None:
        self.assertEqual(tables("", ""), (0, ""))
        for old, new in (
            ("rule(0.4,", "rule(7.4,"), ("SEND: rule(3)", "SEND: rule(2)"), ("rule(2, QUEUED)", "rule(9, QUEUED)"),
            ("1.03", "0.5"), ("1 / 0.98", "1 / 0.99"), ("rule(1000, of", "rule(1001, of"),
        ):  # fmt: skip
            status, said = tables(old, new)
            self.assertEqual(status, 1, new)
            self.assertIn("docs/performance.md", said)


unittest.main()
