# SPDX-License-Identifier: MIT
"""scripts/test-summary: counts cases, not programs; they skip for listed reasons, and in CI 2 % at most.

Usage: test_summary.py ROOT
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(sys.argv[1])

CMOCKA = """[==========] Running {ran} test(s).
[ RUN      ] a
skip: {reason}
[  SKIPPED ] a
[==========] {ran} test(s) run.
[  PASSED  ] {passed} test(s).
[  SKIPPED ] 1 test(s), listed below:
[  SKIPPED ] a

 1 SKIPPED TEST(S)
"""
NEWER_CMOCKA = CMOCKA.replace("] Running", "] tests: Running").replace("] 1 test", "] tests: 1 test")
HARNESS = """test_process_x: {ran} tests, --seed 7 repeats this order
[      OK ] b (0.01 s)
[ SKIPPED ] a (0.00 s)
skip: {reason}
{passed} passed, 0 failed, 1 skipped
"""
UNITTEST = """test_a (__main__.Test.test_a) ... skipped '{reason}'
test_b (__main__.Test.test_b) ... ok

----------------------------------------------------------------------
Ran {ran} tests in 3.412s

OK (skipped=1)
"""
PYTEST = """.....s....                                                          [100%]
SKIPPED [1] ../python/tests/test_exchange.py:268: {reason}
{passed} passed, 1 skipped, 3 deselected in 1.23s
"""


class Summary(unittest.TestCase):
    def summary(self, *tests, limit="0.02"):
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "testlog.json"
            log.write_text("".join(json.dumps(test) + "\n" for test in tests), encoding="utf-8")
            command = [sys.executable, ROOT / "scripts" / "test-summary", log]
            environment = {**os.environ, "SKIP_LIMIT": limit}
            ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment)
        return ended.returncode, ended.stdout

    def program(self, text, ran, reason="needs root", result="OK"):
        said = text.format(ran=ran, passed=ran - 1, reason=reason)
        return {"name": "program", "result": result, "stdout": said}

    def test_cases_are_counted(self):
        forms = [(CMOCKA, "OK"), (NEWER_CMOCKA, "OK"), (HARNESS, "SKIP"), (UNITTEST, "OK"), (PYTEST, "OK")]
        for text, result in forms:
            with self.subTest(text=text):
                status, said = self.summary(self.program(text, 100, result=result))
                self.assertEqual((status, said.splitlines()[-1]), (0, "99 passed, 0 failed, 1 skipped"))

    def test_more_than_two_percent_fail(self):
        for text in (CMOCKA, NEWER_CMOCKA, HARNESS, UNITTEST, PYTEST):
            with self.subTest(text=text):
                status, said = self.summary(self.program(text, 49))
                self.assertIn("1 of 49 skipped is more than 2.0%", said)
                self.assertEqual(status, 1)
                self.assertEqual(self.summary(self.program(text, 50))[0], 0)

    def test_without_a_limit_any_part_may(self):
        self.assertEqual(self.summary(self.program(CMOCKA, 2), limit="")[0], 0)

    def test_other_reasons_fail(self):
        for text in (CMOCKA, NEWER_CMOCKA, HARNESS, UNITTEST, PYTEST):
            with self.subTest(text=text):
                status, said = self.summary(self.program(text, 100, reason="no time"))
                self.assertIn("its skip reason is not in skip-reasons.txt", said)
                self.assertEqual(status, 1)

    def test_a_program_without_cases_is_one(self):
        passed = [{"name": f"p{i}", "result": "OK", "stdout": "done"} for i in range(99)]
        skipped = {"name": "s", "result": "SKIP", "stdout": "skip: needs nothing"}
        self.assertEqual(self.summary(*passed, skipped)[0], 1)
        skipped["stdout"] = "skip: needs a GPU"
        status, said = self.summary(*passed, skipped)
        self.assertEqual((status, said.splitlines()[-1]), (0, "99 passed, 0 failed, 1 skipped"))

    def test_failures_fail(self):
        text = "[==========] Running 9 test(s).\n[  FAILED  ] a\n[  FAILED  ] b\n"
        text += "[  FAILED  ] 2 test(s), listed below:\n[  FAILED  ] a\n[  FAILED  ] b\n"
        status, said = self.summary({"name": "c", "result": "FAIL", "stdout": text})
        self.assertEqual((status, said.splitlines()[-1]), (1, "7 passed, 2 failed, 0 skipped"))
        for result in ("TIMEOUT", "ERROR", "FAIL", "UNEXPECTEDPASS"):
            status, said = self.summary({"name": "c", "result": result})
            self.assertEqual((status, said.splitlines()[-1]), (1, "0 passed, 1 failed, 0 skipped"))

    def test_a_failure_says_why(self):
        whys = (
            "[  ERROR   ] --- 1 != 2\n[   LINE   ] --- ../tests/a.c:12: error: Failure!",
            "[  FAILED ] b (0.01 s)\n  test_b.c:7: [12] x is 1, not y (2)",
            "E       assert 1 == 2\nFAILED a.py::test_c - assert 1 == 2",
            "the only line",
        )
        for text in whys:
            with self.subTest(text=text):
                said = self.summary({"name": "c", "result": "FAIL", "stdout": f"{text}\n", "stderr": "\n"})[1]
                for line in text.splitlines():
                    self.assertIn(f"\n  {line}\n", said)
        long = "".join(f"a.c:{number}: wrong\n" for number in range(100))
        said = self.summary({"name": "c", "result": "FAIL", "stdout": "no word of it\n" * 3 + long})[1]
        self.assertNotIn("no word of it", said)
        self.assertEqual(said.count("wrong"), 12)

    def test_nothing_fails(self):
        self.assertEqual(self.summary()[0], 1)


unittest.main(argv=sys.argv[:1], verbosity=2)
