#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Variables of the original cuda-link set options of the program's channels."""

import json

from program import ProgramTest, main


class Environment(ProgramTest):
    def send(self, *arguments):
        return self.start(
            "send", "x", "--kind", "host", "--size", "64x48", "--wait-consumers", 1, *arguments
        )

    def test_reconnect_off(self):
        """The receiver stays with its first producer, as with --once."""
        self.environment["CUDALINK_IMPORT_RECONNECT"] = "0"
        receiver = self.start("recv", "x", "--json")
        self.finish(self.send("--count", 3))
        self.assertEqual(json.loads(self.finish(receiver)[0])["sessions"], 1)

    def test_what_is_not_understood_is_told(self):
        self.environment["CUDALINK_D2H_STREAMS"] = "many"
        self.environment["CUDALINK_EXPORT_SYNC"] = "yes"
        receiver = self.start("recv", "x", "--once")
        _, sent = self.finish(self.send("--count", 3))
        _, received = self.finish(receiver)
        self.assertIn("CUDALINK_D2H_STREAMS is 'many'", self.one_line(received))
        self.assertIn("CUDALINK_EXPORT_SYNC is 'yes', which means off", self.one_line(sent))

    def test_a_folder_that_is_no_path(self):
        """Commands that only look say so too, instead of finding nothing; help does not need it."""
        self.environment["CUDALINK_RUNTIME_DIR"] = "channels"
        for command in (["list"], ["info", "x"], ["gc"], ["watch"], ["recv", "x"], ["send", "x"], ["demo"]):
            line = self.fail_program(*command, code=2)
            self.assertIn("CUDALINK_RUNTIME_DIR 'channels' must be an absolute path", line)
        self.run_program("list", "--help")
        self.run_program("complete", "info", "")
        self.assertIn('"runtime_folder", "state": "failed"', self.run_program("doctor", "--json", code=5)[0])

    def test_old_variables_do_no_harm(self):
        for name in ("DOORBELL", "USE_GRAPHS", "STICKY_ERROR_CHECK", "EXPORT_FLUSH_PROBE", "NVML"):
            self.environment["CUDALINK_" + name] = "1"
        self.environment["CUDALINK_WAIT_BACKEND"] = "native"
        self.environment["CUDALINK_WAIT_SPIN_US"] = "200"
        receiver = self.start("recv", "x", "--once", "--check", "--json")
        _, errors = self.finish(self.send("--count", 30, "--pattern", "check"))
        self.assertEqual(errors, "")
        out, errors = self.finish(receiver)
        self.assertEqual(errors, "")
        self.assertEqual(json.loads(out)["torn"], 0)


main()
