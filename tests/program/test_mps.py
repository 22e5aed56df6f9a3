# SPDX-License-Identifier: MIT
"""cudalink mps, with a control program of our own that behaves as NVIDIA's: reads a command from
stdin, keeps its state in the folder, leaves a daemon behind that holds the descriptors."""

import os
import stat

from program import ProgramTest, main

CONTROL = """#!/bin/sh
pipes=${CUDA_MPS_PIPE_DIRECTORY:?}
if [ "$1" = -d ]; then
  [ -d "$CUDA_MPS_LOG_DIRECTORY" ] || { echo "no log folder"; exit 1; }
  [ -z "$REFUSE" ] || { echo "$REFUSE" >&2; exit 1; }
  sh -c 'while [ -e "$0/wanted" ]; do sleep 0.01; done; rm -f "$0/runs"' "$pipes" &
  echo $! >"$pipes/runs"
  exit 0
fi
read -r command rest
[ -e "$pipes/runs" ] || { echo "Cannot find MPS control daemon process"; exit 1; }
case $command in
get_server_list) echo 4711; echo 4712 ;;
quit) echo "$command $rest" >"$pipes/asked"; rm -f "$pipes/wanted" "$pipes/runs" ;;
esac
"""


class MpsTest(ProgramTest):
    def setUp(self):
        super().setUp()
        tools = self.folder / "tools"
        tools.mkdir()
        control = tools / "nvidia-cuda-mps-control"
        control.write_text(CONTROL)
        control.chmod(control.stat().st_mode | stat.S_IXUSR)
        self.pipes = self.folder / "pipes"
        self.pipes.mkdir()
        (self.pipes / "wanted").touch()
        self.environment["PATH"] = f"{tools}:{os.environ['PATH']}"
        self.environment["CUDA_MPS_PIPE_DIRECTORY"] = str(self.pipes)

    def tearDown(self):
        (self.pipes / "wanted").unlink(missing_ok=True)
        super().tearDown()

    def test_start_status_stop(self):
        self.assertIn("MPS: off", self.run_program("mps", "status", code=3)[0])
        self.assertIn("4711 4712", self.run_program("mps", "start")[0])
        self.assertIn("already", self.run_program("mps", "start")[0])
        self.assertEqual(
            self.run_json("mps", "status"),
            {"running": True, "folder": str(self.pipes), "servers": "4711 4712"},
        )
        self.assertIn("stopped", self.run_program("mps", "stop", "--timeout", 7)[0])
        self.assertEqual((self.pipes / "asked").read_text(), "quit -t 7\n")
        self.assertFalse(self.run_json("mps", "status", code=3)["running"])

    def test_stop_without_a_daemon(self):
        self.assertIn("no daemon", self.fail_program("mps", "stop", code=3))

    def test_a_refusal_is_told(self):
        self.environment["REFUSE"] = "another user's daemon"
        self.assertIn("another user's daemon", self.fail_program("mps", "start", code=5))

    def test_without_the_driver(self):
        self.environment["PATH"] = str(self.folder)
        self.assertIn("comes with the NVIDIA driver", self.fail_program("mps", "start", code=5))
        self.assertIn("comes with the NVIDIA driver", self.fail_program("mps", "stop", code=5))
        self.assertIn("MPS: off", self.run_program("mps", "status", code=3)[0])

    def test_bad_command_lines(self):
        self.assertIn("start, stop or status", self.fail_program("mps", "strat", code=2))
        self.fail_program("mps", code=2)


if __name__ == "__main__":
    main()
