# SPDX-License-Identifier: MIT
"""cudalink doctor on a driver that refuses one call: for each call that there is. It comes to its end,
says that something failed and what to do, and its exit code agrees with its summary."""

import concurrent.futures
import json
import re
import subprocess
from pathlib import Path

from program import FAKE_DRIVER, PROGRAM, ProgramTest, main

FUNCTIONS = Path(__file__).resolve().parents[2] / "src" / "gpu" / "cuda" / "driver_functions.h"
REFUSED = 999  # CUDA_ERROR_UNKNOWN
HOST_AND_GPU, HOST_ONLY = 0, 1
NEEDED = {"cuInit", "cuDeviceGetCount", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuStreamCreate"}


class DoctorCallsTest(ProgramTest):
    def doctor(self, call):
        folder = self.folder / call
        folder.mkdir(mode=0o700)
        environment = dict(
            self.environment, LD_LIBRARY_PATH=FAKE_DRIVER, FAKECUDA_FAIL=f"{call}:0:{REFUSED}",
            CUDALINK_RUNTIME_DIR=str(folder), TMPDIR=str(self.folder),  # gc looks in the usual folders, too
        )  # fmt: skip
        done = subprocess.run(
            [PROGRAM, "doctor", "--json"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            timeout=300, check=False,
        )  # fmt: skip
        self.assertEqual(done.stderr, b"", call)
        # The fake driver ends a process that goes on with a stack of contexts that never shrinks.
        subprocess.run([PROGRAM, "gc"], env=environment, stdout=subprocess.DEVNULL, timeout=60, check=True)
        self.assertEqual(list(folder.iterdir()), [], call)
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]

    def check(self, call):
        """Whether the call is missed."""
        code, lines = self.doctor(call)
        summary = lines.pop()
        items = {item["id"]: item for item in lines}
        self.assertTrue(summary["host"], call)
        self.assertEqual(code, HOST_AND_GPU if summary["gpu"] else HOST_ONLY, call)
        failed = [item for item in lines if item["state"] == "failed"]
        for item in failed:
            self.assertTrue(item["advice"], item)
        self.assertEqual(items["kind.host"]["state"], "ok", call)
        self.assertEqual(items["demo.vmm"]["state"] == "ok", summary["gpu"], call)
        if call in NEEDED:
            self.assertFalse(summary["gpu"], call)
            self.assertTrue(any(str(REFUSED) in item["text"] for item in failed), lines)
        return bool(failed)

    def test_each_call_refused(self):
        calls = sorted(set(re.findall(r"X\(\w+, (cu\w+)", FUNCTIONS.read_text(encoding="utf-8"))))
        self.assertGreater(len(calls), 100)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            missed = dict(zip(calls, pool.map(self.check, calls)))
        self.assertLessEqual(NEEDED, {call for call in calls if missed[call]})


if __name__ == "__main__":
    main()
