# SPDX-License-Identifier: MIT
"""scripts/soak counts the kills that there were, and fails when they are fewer than were asked for.

Usage: test_soak.py ROOT
"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(sys.argv[1])
OTHERS = ("death", "order", "restart", "points", "use", "limits", "field", "elsewhere", "notice")
STORM = """#!/bin/sh
echo "test_process_storm: 1 tests, --seed 1 repeats this order"
echo "[      OK ] random_kills (0.01 s)"
echo "{kills} kills, 3 of them of producers"
exit {status}
"""


class Soak(unittest.TestCase):
    def soak(self, kills, status=0, minutes=1):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "tests" / "process" / "test_process_storm"
            program.parent.mkdir(parents=True)
            program.write_text(STORM.format(kills=kills, status=status), encoding="utf-8")
            program.chmod(0o755)
            for name in OTHERS:
                other = program.with_name(f"test_process_{name}")
                other.symlink_to("/bin/true")
            command = [sys.executable, ROOT / "scripts" / "soak", folder, "--kills", "20000"]
            ended = subprocess.run(
                [*command, "--minutes", str(minutes)],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        return ended.returncode, ended.stdout

    def test_what_the_storm_counted_is_what_counts(self):
        status, said = self.soak(kills=25000, minutes=0.01)
        self.assertIn("no failure; 25000 of 20000 kills", said)
        self.assertEqual(said.count("test_process_storm --seed"), 1)
        self.assertEqual(status, 0)

    def kills(self, said):
        return int(said.split("no failure; ")[1].split(" of ")[0])

    def test_too_few_fail(self):
        status, said = self.soak(kills=3, minutes=0.001)
        self.assertEqual(self.kills(said), 3 * said.count("test_process_storm --seed"))
        self.assertLess(self.kills(said), 20000)
        self.assertIn("the time was over before", said)
        self.assertEqual(status, 1)

    def test_a_storm_that_counts_none_fails(self):
        for kills, status in ((0, 0), ("no", 0), (10, 1)):
            ended, said = self.soak(kills, status)
            self.assertIn("soak: failed", said)
            self.assertEqual(ended, 1)


unittest.main(argv=sys.argv[:1], verbosity=2)
