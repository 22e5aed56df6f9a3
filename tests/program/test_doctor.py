# SPDX-License-Identifier: MIT
"""cudalink doctor on a machine that works, and on ones in which something is broken: the line of the
thing that is broken says so, the advice fits, and the exit code says what still runs."""

import contextlib
import errno
import fcntl
import itertools
import json
import os
import pty
import resource
import signal
import struct
import subprocess
import termios
import time
import unittest
from pathlib import Path

import seccomp
from program import FAKE_DRIVER, PROGRAM, ProgramTest, main

HOST_AND_GPU, HOST_ONLY, NOTHING = 0, 1, 5


def limited(what, value):
    def limit():
        resource.setrlimit(what, (value, resource.getrlimit(what)[1]))

    return limit


class DoctorTest(ProgramTest):
    def with_driver(self, **settings):
        self.environment["LD_LIBRARY_PATH"] = FAKE_DRIVER
        self.environment.update(settings)

    def doctor(self, code, *arguments, **options):
        """The items by id, and the summary."""
        out, _ = self.run_program("doctor", "--json", *arguments, code=code, **options)
        lines = [json.loads(line) for line in out.splitlines()]
        return {item["id"]: item for item in lines[:-1]}, lines[-1]

    def assert_failed(self, item, text, advice=""):
        self.assertEqual(item["state"], "failed", item)
        self.assertIn(text, item["text"])
        self.assertTrue(item["advice"], item)
        self.assertIn(advice, item["advice"])

    def doctor_with_mount(self, place, options, code):
        """In a mount namespace, where an empty file system lies over `place`."""
        own = ["unshare", "--mount", *(["--map-root-user"] if os.getuid() else [])]
        if subprocess.run([*own, "true"], stderr=subprocess.DEVNULL, check=False).returncode:
            self.skipTest("needs user namespaces")
        script = 'mount -t tmpfs -o "$1" none "$2" && exec "$0" doctor --json'
        done = subprocess.run(
            [*own, "sh", "-c", script, PROGRAM, options, place],
            env=self.environment, stdout=subprocess.PIPE, timeout=60, check=False,
        )  # fmt: skip
        self.assertEqual(done.returncode, code, done.stdout)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return {item["id"]: item for item in lines[:-1]}, lines[-1]

    # ---- a machine that works

    def test_host_alone(self):
        items, summary = self.doctor(HOST_AND_GPU)
        self.assertEqual((summary["host"], summary["gpu"]), (True, False))
        for name in ("kind.host", "memfd", "runtime_folder", "kill", "demo.host"):
            self.assertEqual(items[name]["state"], "ok", items[name])
        self.assertGreater(items["kill"]["ns"], 0)
        self.assert_failed(items["driver"], "no CUDA driver is installed")

    def test_with_a_driver(self):
        self.with_driver()
        items, summary = self.doctor(HOST_AND_GPU)
        self.assertEqual((summary["host"], summary["gpu"]), (True, True))
        for name in ("driver", "kind.vmm", "kind.ipc", "sync.write64", "sync.wait64", "demo.vmm"):
            self.assertEqual(items[name]["state"], "ok", items[name])

    def test_for_people(self):
        self.with_driver()
        out, _ = self.run_program("doctor")
        self.assertRegex(out, r"GPU 0: .* MiB, compute capability \d+\.\d")
        self.assertRegex(out, r"(?m)^ok +demo\.vmm +[\d.]+ (ms|s)  one process sent")
        self.assertTrue(out.endswith("in memory of the CPU: yes; on the GPU: yes\n"), out)

    # ---- things broken, one at a time; test_doctor_calls.py: each call of the driver

    def test_kinds(self):
        """Whoever asks for a kind or a GPU hears by the exit code that it is missing."""
        for arguments in (["--kind", "vmm"], ["--kind", "ipc"], ["--device", "0"]):
            items, summary = self.doctor(HOST_ONLY, *arguments)
            self.assertEqual((summary["host"], summary["gpu"]), (True, False))
            demo = "demo.ipc" if "ipc" in arguments else "demo.vmm"
            self.assert_failed(items[demo], "no CUDA driver is installed", "lines above")
        for arguments in (["--kind", "host"], ["--kind", "host", "--device", "5"]):
            items, summary = self.doctor(HOST_AND_GPU, *arguments)
            self.assertEqual((summary["host"], summary["gpu"]), (True, None))
            self.assertEqual([name for name in items if name.startswith("demo.")], ["demo.host"])
        self.assertIn("did not count", self.run_program("doctor", "--kind", "host")[0])

    def test_devices(self):
        self.with_driver(FAKECUDA_DEVICES="2")
        items, _ = self.doctor(HOST_AND_GPU, "--device", 1)
        self.assertEqual(items["demo.vmm"]["state"], "ok")
        items, _ = self.doctor(HOST_AND_GPU, "--kind", "ipc", "--device", 1)
        self.assertEqual(items["demo.ipc"]["state"], "ok")
        items, summary = self.doctor(HOST_ONLY, "--device", 2)
        self.assertEqual((summary["host"], summary["gpu"]), (True, False))
        for name in ("kind.vmm", "kind.ipc", "demo.vmm"):
            self.assert_failed(items[name], "there are GPUs 0 to 1")
        self.environment["FAKECUDA_FAIL"] = "cuIpcGetMemHandle:0:801"
        self.assert_failed(self.doctor(HOST_ONLY, "--kind", "ipc")[0]["demo.ipc"], "801", "lines above")

    def test_broken_vmm(self):
        self.with_driver(FAKECUDA_FAIL="cuMemCreate:0:801")
        items, summary = self.doctor(HOST_ONLY)
        self.assertEqual((summary["host"], summary["gpu"]), (True, False))
        self.assert_failed(items["kind.vmm"], "801")
        self.assertEqual(items["demo.vmm"]["state"], "failed")

    def test_broken_export(self):
        self.with_driver(FAKECUDA_FAIL="cuMemExportToShareableHandle:0:1")
        items, _ = self.doctor(HOST_ONLY)
        self.assert_failed(items["kind.vmm"], "failed")
        self.assertEqual(items["kind.ipc"]["state"], "ok", items["kind.ipc"])

    def test_broken_ipc(self):
        self.with_driver(FAKECUDA_FAIL="cuIpcGetMemHandle:0:801")
        items, _ = self.doctor(HOST_AND_GPU)
        self.assert_failed(items["kind.ipc"], "801")
        self.assertEqual(items["kind.vmm"]["state"], "ok", items["kind.vmm"])

    def test_broken_stream_memory_operations(self):
        self.with_driver(FAKECUDA_FAIL="cuStreamWriteValue64:0:801")
        items, _ = self.doctor(HOST_AND_GPU)  # there are fall-backs
        self.assert_failed(items["sync.write64"], "801")
        self.assertEqual(items["sync.write32"]["state"], "ok", items["sync.write32"])

    def test_a_driver_that_crashes(self):
        self.with_driver(FAKECUDA_FAIL=f"cuMemCreate:0:-{int(signal.SIGABRT)}")
        items, _ = self.doctor(HOST_ONLY)
        self.assert_failed(items["kind.vmm"], "ended by signal 6")

    def test_a_driver_that_is_too_old(self):
        self.with_driver(FAKECUDA_VERSION="11.2")
        items, _ = self.doctor(HOST_ONLY)
        self.assert_failed(items["driver"], "11.2")

    def test_no_gpu(self):
        self.with_driver(FAKECUDA_DEVICES="0")
        items, _ = self.doctor(HOST_ONLY)
        self.assertEqual(items["driver"]["state"], "failed", items["driver"])

    def test_no_usable_folder(self):
        self.channels.chmod(0o777)  # anybody could put a socket there
        items, summary = self.doctor(NOTHING)
        self.assertFalse(summary["host"])
        self.assert_failed(items["runtime_folder"], str(self.channels))
        self.assertEqual(items["demo.host"]["state"], "failed")

    def test_a_folder_that_cannot_be_made(self):
        self.environment["CUDALINK_RUNTIME_DIR"] = "/proc/cudalink"
        items, _ = self.doctor(NOTHING)
        self.assert_failed(items["runtime_folder"], "/proc/cudalink", "CUDALINK_RUNTIME_DIR")
        self.assert_failed(items["kill"], "/proc/cudalink", "runtime_folder")
        self.assert_failed(items["demo.host"], "/proc/cudalink", "lines above")

    def test_a_read_only_folder(self):
        items, _ = self.doctor_with_mount(self.channels, "ro,mode=700", NOTHING)
        self.assert_failed(items["kill"], "Read-only file system", "runtime_folder")
        self.assert_failed(items["demo.host"], "Read-only file system")

    def test_no_dev_shm(self):
        """Only the original cuda-link's channels need it: the main job runs."""
        items, summary = self.doctor_with_mount("/dev/shm", "ro", HOST_AND_GPU)
        self.assertTrue(summary["host"])
        self.assert_failed(items["dev_shm"], "/dev/shm can't be written to", "original cuda-link")

    @unittest.skipUnless(seccomp.MEMFD_CREATE, "needs a newer kernel")
    def test_no_memfd(self):
        """As in a sandbox that knows no memfd_create, or none of any size."""
        for error in (errno.ENOSYS, errno.EPERM):
            items, _ = self.doctor(NOTHING, preexec_fn=seccomp.deny(seccomp.MEMFD_CREATE, error))
            self.assert_failed(items["memfd"], os.strerror(error), "allow memfd_create")
            self.assert_failed(items["kind.host"], os.strerror(error), "memfd")
            self.assert_failed(items["kill"], os.strerror(error), "memfd")
            self.assert_failed(items["demo.host"], os.strerror(error), "lines above")
            self.assertEqual(items["helper"]["state"], "ok", items["helper"])

    def test_a_descriptor_limit(self):
        items, _ = self.doctor(NOTHING, preexec_fn=limited(resource.RLIMIT_NOFILE, 16))
        self.assert_failed(items["limit.nofile"], "is 16", "ulimit -n")
        self.assert_failed(items["demo.host"], "", "lines above")  # which of its processes fails first varies

    def test_nothing_above_says_why(self):
        """Then the advice does not point there. One line of the reason is enough."""
        self.with_driver(FAKECUDA_FAIL="cuMemcpyDtoHAsync:0:700")
        items, _ = self.doctor(HOST_ONLY)
        self.assert_failed(items["demo.vmm"], "700", "nothing above failed")
        self.assertNotIn("\n", items["demo.vmm"]["text"])

    def test_a_file_size_limit(self):
        items, _ = self.doctor(NOTHING, preexec_fn=limited(resource.RLIMIT_FSIZE, 4096))
        self.assertEqual(items["limit.fsize"]["state"], "failed", items["limit.fsize"])
        self.assertEqual(items["demo.host"]["state"], "failed")

    def test_foreign_file(self):
        (self.channels / "holiday.jpg").touch()
        items, _ = self.doctor(HOST_AND_GPU)
        self.assert_failed(items["channels"], "holiday.jpg")
        (self.channels / "holiday.jpg").unlink()

    def test_a_dead_producer(self):
        sender = self.start("send", "gone", "--size", "64x48")
        self.wait_for_line(sender, "gone")
        sender.kill()
        sender.wait()
        items, _ = self.doctor(HOST_AND_GPU)
        text = f"1 channel, 1 of a dead producer, in {self.channels}; cudalink gc removes what is left"
        self.assertEqual(items["channels"]["text"], text)
        self.assertIsNone(items["channels"]["advice"])
        self.run_program("gc")
        self.assertEqual(self.doctor(HOST_AND_GPU)[0]["channels"]["text"], "there is none")

    def test_a_dead_producer_elsewhere(self):
        """Where it is not looked for first, it is named."""
        folder = self.folder / f"cudalink-{os.getuid()}"
        self.environment["CUDALINK_RUNTIME_DIR"] = str(folder)
        for name in ("one", "two"):
            sender = self.start("send", name, "--size", "64x48")
            self.wait_for_line(sender, name)
            sender.kill()
            sender.wait()
        self.environment["CUDALINK_RUNTIME_DIR"] = str(self.channels)
        text = self.doctor(HOST_AND_GPU)[0]["channels"]["text"]
        self.assertIn(f"2 channels, 2 of dead producers, in {folder}; cudalink gc", text)
        self.run_program("gc")

    # ---- the page

    def test_ok_needs_no_advice(self):
        """Neither does what is bad for another reason point at it."""
        self.with_driver()
        out, _ = self.run_program("doctor")
        lines = out.splitlines()
        advised = [lines[i - 1].split()[0] for i, line in enumerate(lines) if line.lstrip().startswith("-> ")]
        self.assertNotIn("ok", advised, out)
        self.assertIn("MPS is off", out)

    def test_no_gpu_is_visible(self):
        self.with_driver(CUDA_VISIBLE_DEVICES="")
        out, _ = self.run_program("doctor", code=HOST_ONLY)
        self.assertRegex(out.splitlines()[-1], r"on the GPU: no: .* may use \(CUDA_VISIBLE_DEVICES is ''\)")
        self.assertIn("cudalink demo --kind vmm shows the same", out)
        self.with_driver(FAKECUDA_FAIL="cuMemcpyDtoHAsync:0:700")
        del self.environment["CUDA_VISIBLE_DEVICES"]
        out, _ = self.run_program("doctor", "--kind", "ipc", code=HOST_ONLY)
        self.assertRegex(out.splitlines()[-1], r"on the GPU: no: .*700")
        self.assertIn("run cudalink demo --kind ipc with a longer --seconds", out)

    def test_a_terminal_of_80_columns(self):
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 0, 80, 0, 0))
        doctor = self.start("doctor", stdout=theirs)
        os.close(theirs)
        text = b""
        with contextlib.suppress(OSError):  # EIO: it has ended
            while piece := os.read(ours, 4096):
                text += piece
        os.close(ours)
        self.finish(doctor)
        lines = text.decode().replace("\r", "").splitlines()
        wide = [line for line in lines if len(line) > 80 and len(line.split()[-1]) < 42]
        self.assertEqual(wide, [])
        at = next(i for i, line in enumerate(lines) if " demo.host " in line)
        self.assertEqual(lines[at].index("one process"), 38)
        self.assertEqual(len(lines[at + 1]) - len(lines[at + 1].lstrip()), 38)


class CtrlCTest(ProgramTest):
    """Wherever a signal comes, nothing is left: no file, no process, no line about what it broke off."""

    SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # of the time that it takes

    def session_of(self, leader):
        for place in Path("/proc").glob("[0-9]*"):
            try:
                fields = (place / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            if int(fields[3]) == leader and fields[0] not in "ZX" and int(place.name) != leader:
                yield place.name

    def catches(self, process):
        status = Path(f"/proc/{process.pid}/status").read_text()
        caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
        return int(caught.split()[1], 16) & (1 << (signal.SIGINT - 1))

    def end(self, moment, number, send):
        doctor = self.start("doctor", "--json", start_new_session=True)
        self.wait_for(lambda: doctor.poll() is not None or self.catches(doctor), "it catches signals")
        moment(doctor)
        if doctor.poll() is None:
            send(doctor.pid, number)
        out, errors = doctor.communicate(timeout=60)
        self.assertIn(doctor.returncode, (0, 128 + number), (out, errors))
        self.assertEqual(errors, b"")
        self.assertEqual([path.name for path in self.channels.iterdir()], [])
        self.wait_for(lambda: not list(self.session_of(doctor.pid)), "all have ended")
        for item in map(json.loads, out.splitlines()):
            if item.get("id") in ("helper", "kill", "demo.host"):
                self.assertEqual(item["state"], "ok", item)
        return doctor.returncode

    def test_at_all_times(self):
        """Every moment is as good as another: how long it takes here only spreads them."""
        start = time.monotonic()
        self.run_program("doctor")
        whole = time.monotonic() - start
        ways = itertools.cycle(itertools.product((signal.SIGINT, signal.SIGTERM), (os.kill, os.killpg)))
        codes = [
            self.end(lambda _, share=share: time.sleep(share * whole), *next(ways)) for share in self.SHARES
        ]
        self.assertIn(128 + signal.SIGINT, codes)

    def test_while_a_channel_is_there(self):
        def appears(doctor):
            self.wait_for(lambda: doctor.poll() is not None or any(self.channels.iterdir()), "a channel")

        for send in (os.kill, os.killpg):
            self.end(appears, signal.SIGTERM, send)

    def test_while_a_driver_hangs(self):
        """The helper waits for it; its processes end with it."""
        self.environment["LD_LIBRARY_PATH"] = FAKE_DRIVER
        self.environment["FAKECUDA_FAIL"] = "cuIpcGetMemHandle:0:-1000"

        def starts(doctor):
            self.wait_for(lambda: len(list(self.session_of(doctor.pid))) > 2, "its processes")

        self.assertEqual(self.end(starts, signal.SIGINT, os.kill), 130)


if __name__ == "__main__":
    main()
