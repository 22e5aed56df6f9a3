#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Each command with each kind of memory, on the fake driver: what is used is what was asked for, and
the program says which way and why."""

import ctypes
import json
import os
import socket

from program import FAKE_DRIVER, ProgramTest, main

PATHS = {"vmm": "gpu vmm descriptor", "ipc": "gpu ipc handle", "host": "host memfd"}
WAYS = {"vmm": "shared by descriptor", "ipc": "shared by legacy handle", "host": "shared memory"}
UUID = "GPU-facecda0-1e55-4000-8000-66616b650003"  # of GPU 2; the fake wants the whole of it


def has_driver():
    """Of this machine's own."""
    try:
        return bool(ctypes.CDLL("libcuda.so.1"))
    except OSError:
        return False


class OnFakeDriver(ProgramTest):
    def setUp(self):
        super().setUp()
        self.environment["LD_LIBRARY_PATH"] = FAKE_DRIVER


class Kinds(OnFakeDriver):
    def check(self, summary, kind, wanted):
        self.assertEqual((summary["kind"], summary["path"]), (kind, PATHS[kind]))
        self.assertTrue(summary["reason"])
        if wanted != "auto":
            words = "" if kind == "host" else "; words by 64-bit stream memory operations"
            self.assertEqual(summary["reason"], "asked for" + words)

    def each(self):
        for wanted, kind in (("auto", "vmm"), ("vmm", "vmm"), ("ipc", "ipc"), ("host", "host")):
            with self.subTest(kind=wanted):
                yield wanted, kind

    def test_demo(self):
        for wanted, kind in self.each():
            result = self.run_json("demo", "--kind", wanted, "--seconds", 0.5, "--size", "64x48")
            self.check(result, kind, wanted)
            self.assertIs(result["ok"], True)
            self.assertEqual((result["torn"], result["lost"]), (0, 0))
            for one in result["per_consumer"]:
                self.assertEqual(one["frames_received"] + one["skipped"], result["frames_sent"])

    def test_demo_says_how(self):
        for wanted, kind in self.each():
            out, _ = self.run_program("demo", "--kind", wanted, "--seconds", 0.2, "--size", "64x48")
            first = out.splitlines()[0]
            self.assertTrue(first.endswith(f"kind {kind}, {WAYS[kind]}"), first)

    def test_how_frames_travel_is_said_in_short(self):
        """Why so is in info and JSON."""
        for wanted, kind in self.each():
            sender = self.start("send", "x", "--kind", wanted, "--size", "64x48")
            line = self.wait_for_line(sender, "channel x")
            self.assertEqual(line, f"channel x: kind {kind}, {WAYS[kind]}\n")
            out, _ = self.run_program("recv", "x", "--count", 1)
            self.assertEqual(out.splitlines()[1:], [f"kind {kind}, {WAYS[kind]}"])
            out = self.ask("list")
            self.assertIn(f" {WAYS[kind]} ", out)
            self.assertNotIn("asked for", out)
            self.assertNotIn("when tried", out)
            self.assertIn(f"path       {PATHS[kind]}: ", self.ask("info", "x"))
            self.interrupt(sender)

    def test_send_and_recv(self):
        for wanted, kind in self.each():
            for accepted in ("auto", kind):
                receiver = self.start(
                    "recv", "x", "--kind", accepted, "--policy", "every", "--once", "--check", "--json"
                )
                sent = self.run_json(
                    "send", "x", "--kind", wanted, "--pattern", "check", "--size", "64x48", "--count",
                    30, "--fps", 0, "--wait-consumers", 1,
                )  # fmt: skip
                received = json.loads(self.finish(receiver)[0])
                self.check(sent, kind, wanted)
                self.assertEqual((received["kind"], received["path"]), (kind, PATHS[kind]))
                self.assertEqual(received["frames_received"], 30)
                self.assertEqual((received["checked"], received["torn"]), (30, 0))

    def test_recv_of_another_kind(self):
        sender = self.start("send", "x", "--kind", "vmm", "--size", "64x48")
        self.wait_for_line(sender, "channel x")
        out, errors = self.run_program("recv", "x", "--kind", "ipc", "--count", 1, code=3)
        self.assertIn("of kind vmm, not ipc", self.one_line(errors))
        self.assertEqual(out, "")  # no frame counts
        refused = self.run_json("recv", "x", "--kind", "ipc", "--count", 1, code=3)
        self.assertEqual((refused["frames_received"], refused["bytes"]), (0, 0))
        out, errors = self.run_program("record", "x", "take", "--kind", "ipc", "--count", 1, code=3)
        self.assertIn("of kind vmm, not ipc", self.one_line(errors))
        self.assertEqual(out, "")
        self.interrupt(sender)

    def test_files_through_a_gpu(self):
        """Odd sizes and several planes: what comes out is what went in."""
        for wanted, _ in self.each():
            for name, form in (("a", "RGBA8"), ("b", "NV12")):
                receiver = self.start(
                    "recv", "x", "--policy", "every", "--once", "--out", f"{name}.raw", "--as", "raw"
                )
                self.run_program(
                    "send", "x", "--pattern", "check", "--size", "62x38", "--format", form, "--count", 3,
                    "--kind", wanted, "--fps", 0, "--wait-consumers", 1,
                )  # fmt: skip
                self.finish(receiver)
            sizes = [os.path.getsize(self.path(f"{name}.raw")) for name in "ab"]
            self.assertEqual(sizes, [62 * 38 * 4 * 3, 62 * 38 * 3 // 2 * 3])

    def test_bench(self):
        for wanted, kind in self.each():
            result = self.run_json("bench", "--quick", "--row", "acquire", "--kind", wanted)
            self.assertEqual(result["kind"], kind)
            self.assertEqual([row["name"] for row in result["results"]], ["acquire"])
            self.assertGreater(result["results"][0]["p50"], 0)


class Devices(OnFakeDriver):
    def setUp(self):
        super().setUp()
        self.environment["FAKECUDA_DEVICES"] = "3"

    COMMANDS = (
        ("demo", "--seconds", 0.2, "--size", "64x48"),
        ("send", "x", "--count", 1, "--size", "64x48"),
    )

    def test_by_number(self):
        for command in self.COMMANDS:
            for number in (0, 2):
                result = self.run_json(*command, "--kind", "vmm", "--device", number)
                self.assertEqual(result["kind"], "vmm")
            error = self.fail_program(*command, "--kind", "vmm", "--device", 3, code=5)
            self.assertIn("kind vmm on GPU 3: there are GPUs 0 to 2", error)
        result = self.run_json("bench", "--quick", "--row", "begin", "--kind", "vmm", "--device", 2)
        self.assertGreater(result["results"][0]["p50"], 0)
        error = self.fail_program(
            "bench", "--quick", "--row", "begin", "--kind", "vmm", "--device", 3, code=5
        )
        self.assertIn("kind vmm on GPU 3: there are GPUs 0 to 2", error)

    def test_by_uuid(self):
        for command in self.COMMANDS:
            result = self.run_json(*command, "--kind", "vmm", "--device", UUID)
            self.assertEqual(result["kind"], "vmm")
            for kind in ("vmm", "auto"):
                error = self.fail_program(*command, "--kind", kind, "--device", "GPU-00", code=5)
                self.assert_unknown(error, f"there are {UUID[:-1]}1, {UUID[:-1]}2, {UUID}")
        self.environment["FAKECUDA_DEVICES"] = "1"
        self.environment["CUDA_VISIBLE_DEVICES"] = "9"  # which --device replaces
        for command in (*self.COMMANDS, ("bench", "--quick", "--row", "begin")):
            error = self.fail_program(*command, "--device", "GPU-00", code=5)
            self.assert_unknown(error, f"there is only {UUID[:-1]}1")

    def test_consumer_by_uuid(self):
        sender = self.start("send", "x", "--kind", "vmm", "--size", "64x48")
        self.wait_for_line(sender, "channel x")
        error = self.fail_program("recv", "x", "--device", "GPU-00", "--count", 1, code=5)
        self.assert_unknown(error, f"there are {UUID[:-1]}1, ")
        self.interrupt(sender)

    def assert_unknown(self, error, there):
        self.assertIn(f"--device GPU-00: no GPU's UUID begins so; {there}", error)

    def test_a_uuid_that_is_not_to_blame(self):
        """It names a GPU whose memory can't be shared, or there is no driver to ask."""
        self.environment["FAKECUDA_FAIL"] = "cuMemExportToShareableHandle:0:801,cuIpcGetMemHandle:0:1"
        error = self.fail_program("send", "x", "--device", UUID, code=5)
        self.assertIn("CUDA_ERROR_NOT_SUPPORTED", error)
        if not has_driver():
            self.environment["LD_LIBRARY_PATH"] = "/nowhere"
            error = self.fail_program("send", "x", "--device", "GPU-00", code=5)
            self.assertIn("no CUDA driver is installed", error)

    def test_auto_takes_no_memory_of_the_cpu_instead(self):
        """Who names a GPU wants that one."""
        commands = (*self.COMMANDS, ("bench", "--quick", "--row", "begin"))
        for command in commands:
            self.assertEqual(self.run_json(*command, "--device", 2)["kind"], "vmm")
            error = self.fail_program(*command, "--device", 3, code=5)
            self.assertIn("kind auto on GPU 3: there are GPUs 0 to 2; where no GPU is named", error)
        self.environment["FAKECUDA_FAIL"] = "cuMemExportToShareableHandle:0:801,cuIpcGetMemHandle:0:1"
        error = self.fail_program("send", "x", "--device", 2, code=5)
        self.assertIn("kind auto on GPU 2: vmm: CUDA_ERROR_NOT_SUPPORTED", error)
        self.assertIn("ipc: CUDA_ERROR_INVALID_VALUE", error)
        del self.environment["FAKECUDA_FAIL"]
        self.environment["FAKECUDA_DEVICES"] = "0"
        for command in commands:
            error = self.fail_program(*command, "--device", 0, code=5)
            self.assertIn("no GPU that it may use", error)
            self.assertEqual(self.run_json(*command)["kind"], "host")  # nobody named one
        self.environment["LD_LIBRARY_PATH"] = "/nowhere"
        if not has_driver():
            for command in commands:
                error = self.fail_program(*command, "--device", 0, code=5)
                self.assertIn("kind auto on GPU 0: no CUDA driver is installed", error)

    def test_consumer_on_another(self):
        """A consumer may map a producer's memory for its own GPU."""
        receiver = self.start("recv", "x", "--device", 1, "--count", 3, "--check", "--json")
        self.run_program(
            "send", "x", "--kind", "vmm", "--device", 0, "--pattern", "check", "--size", "64x48",
            "--count", 200, "--wait-consumers", 1,
        )  # fmt: skip
        self.assertEqual(json.loads(self.finish(receiver)[0])["torn"], 0)

    def test_a_consumer_of_a_gpu_that_is_not_there(self):
        """Frames in memory of the CPU would come without it, and nobody would notice."""
        sender = self.start("send", "x", "--kind", "host", "--size", "64x48")
        self.wait_for_line(sender, "channel x")
        commands = (("recv", "x", "--count", 1), ("record", "x", "take", "--count", 1))
        advice = "; without --device frames are taken where their producer has them"
        for command in commands:
            self.run_program(*command, "--device", 2)
            self.run_program(*command, "--device", UUID)
            error = self.fail_program(*command, "--device", 3, code=5)
            self.assertIn("--device 3: there are GPUs 0 to 2" + advice, error)
            self.assert_unknown(self.fail_program(*command, "--device", "GPU-00", code=5), "there are ")
            self.run_program(*command, "--device", 3, "--kind", "host")
        self.fail_program("recv", "x", "--out", "out.raw", "--device", 3, code=5)
        self.assertFalse(os.path.exists(self.path("out.raw")))
        error = self.fail_program("recv", "nobody", "--device", 3, code=5)
        self.assertIn("--device 3: there are GPUs 0 to 2", error)
        self.environment["LD_LIBRARY_PATH"] = "/nowhere"
        for command in commands if not has_driver() else ():
            for device in ("0", "GPU-00"):
                error = self.fail_program(*command, "--device", device, code=5)
                self.assertIn(f"--device {device}: no CUDA driver is installed", error)
            self.run_program(*command)
        self.interrupt(sender)

    def start_senders(self):
        """On GPU 0, on GPU 2, in memory of the CPU."""
        for name, options in (("a", ("vmm", "--device", 0)), ("b", ("ipc", "--device", 2)), ("c", ("host",))):
            sender = self.start("send", name, "--size", "64x48", "--kind", *options)
            self.wait_for_line(sender, f"channel {name}")
            yield sender

    def listed(self, *options):
        lines = self.ask("list", "--json", *options).splitlines()
        return [json.loads(line)["name"] for line in lines]

    def watched(self, *options):
        look = json.loads(self.ask("watch", "--json", "--count", 1, "--interval", 0.05, *options))
        return [channel["name"] for channel in look["channels"]]

    def check_names(self, look, names, *options):
        """A filter leaves out a producer that was not let run for 0.3 s: then it looks again."""
        found = []

        def all_answer():
            found[:] = look(*options)
            return set(found) >= set(names)

        self.wait_for(all_answer, f"{names!r} answer to {options}")
        self.assertEqual(found, list(names), options)

    def test_channels_name_their_gpu(self):
        senders = list(self.start_senders())
        info = self.ask_json("info", "b")
        self.assertEqual((info["device"], info["device_name"]), (UUID, "Fake H200 2"))
        self.assertIn(f"\ndevice     {UUID}, Fake H200 2\n", self.ask("info", "b"))
        self.assertNotIn("\ndevice ", self.ask("info", "c"))
        title, *rows = self.ask("list").splitlines()
        self.assertRegex(title, r"^CHANNEL  STATE  KIND +AGE .* PICTURE +DEVICE +PATH ")
        at = title.index("DEVICE")
        self.assertEqual([row[at : at + 12].strip() for row in rows], [UUID[:12], UUID[:12], ""])
        self.assertNotIn("DEVICE", self.ask("list", "--kind", "host"))
        for sender in senders:
            self.interrupt(sender)

    def test_channels_of_a_gpu(self):
        senders = list(self.start_senders())
        first = f"{UUID[:-1]}1"
        for options, names in [
            ((), "abc"), (("0",), "a"), (("1",), ""), (("2",), "b"), ((UUID,), "b"), ((first,), "a"),
            ((UUID[:12],), "ab"), (("2", "--kind", "ipc"), "b"), (("2", "--kind", "vmm"), ""),
            (("GPU-00",), ""), ((UUID + "0",), ""),
        ]:  # fmt: skip
            device = ("--device", *options) if options else ()
            self.check_names(self.listed, names, *device)
            self.check_names(self.watched, names, *device)
        self.assertEqual(
            self.ask("list", "--device", 2, "--kind", "vmm"),
            f"no channels of kind vmm on {UUID} among the 3 that there are\n",
        )
        self.environment["CUDA_VISIBLE_DEVICES"] = "2"  # numbers are the looking process's own
        self.check_names(self.listed, "b", "--device", 0)
        del self.environment["CUDA_VISIBLE_DEVICES"]
        self.assertEqual(self.ask("complete", "list", "--device", "").split(), [first, UUID])
        for sender in senders:
            self.interrupt(sender)

    def channel_infos(self):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self.path("metrics.sock"))
            connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            text = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
        return [line for line in text.splitlines() if line.startswith("cudalink_channel_info{")]

    def test_metrics_of_a_gpu(self):
        senders = list(self.start_senders())
        lines = []

        def measured():
            lines[:] = self.channel_infos()
            return [line.split('"')[1] for line in lines]

        for device, channels in (((), "abc"), (("--device", "2"), "b")):
            server = self.start("watch", "--prometheus", "metrics.sock", *device)
            self.wait_for_line(server, "metrics")
            self.check_names(measured, channels)
            wanted = {"a": f"{UUID[:-1]}1", "b": UUID, "c": ""}
            for line, channel in zip(lines, channels, strict=True):
                self.assertIn(f',device="{wanted[channel]}",', line)
            self.interrupt(server)
        for sender in senders:
            self.interrupt(sender)

    def test_looking_needs_a_driver_for_numbers_only(self):
        senders = list(self.start_senders())
        for command in ("list", "watch"):
            error = self.fail_program(command, "--device", 3, code=5)
            self.assertIn("GPU 3? there are GPUs 0 to 2; name it by its UUID", error)
        self.environment["FAKECUDA_DEVICES"] = "1"
        error = self.fail_program("list", "--device", 1, code=5)
        self.assertIn("GPU 1? there is only GPU 0; name it by its UUID", error)
        error = self.fail_program("send", "z", "--device", 1, code=5)
        self.assertIn("kind auto on GPU 1: there is only GPU 0", error)
        self.environment["FAKECUDA_DEVICES"] = "0"
        self.assertIn("finds no GPU", self.fail_program("list", "--device", 0, code=5))
        self.environment["LD_LIBRARY_PATH"] = "/nowhere"
        self.check_names(self.listed, "b", "--device", UUID)
        if not has_driver():
            for command in ("list", "watch"):
                error = self.fail_program(command, "--device", 2, code=5)
                self.assertIn("which one is GPU 2? no CUDA driver is installed", error)
        for sender in senders:
            self.interrupt(sender)

    def test_what_is_no_device(self):
        for value in ("-1", "first", "GPU-", "GPU-xyz", "1.5", "99999999999", ""):
            for command in ("demo", "send", "recv", "bench", "list", "watch"):
                name = ("x",) if command in ("send", "recv") else ()
                error = self.fail_program(command, *name, f"--device={value}", code=2)
                self.assertIn("UUID", error)


class NoGpu(OnFakeDriver):
    """Whoever needs a GPU on a machine without one hears it as said of exit code 5, whatever the command."""

    def start_sender(self, kind):
        """It has a GPU; CUDA_VISIBLE_DEVICES or a container may hide it from its consumers."""
        sender = self.start("send", "x", "--kind", kind, "--size", "64x48")
        self.wait_for_line(sender, "channel x")
        return sender

    def without(self):
        """No driver, where this machine has none of its own; then a driver that finds no GPU."""
        if not has_driver():
            self.environment["LD_LIBRARY_PATH"] = "/nowhere"
            yield "no CUDA driver is installed"
        self.environment["LD_LIBRARY_PATH"] = FAKE_DRIVER
        self.environment["FAKECUDA_DEVICES"] = "0"
        yield "no GPU that it may use"
        del self.environment["FAKECUDA_DEVICES"]

    def test_producers(self):
        receiver = self.start("record", "x", "take.rec", "--count", 1)
        sent = ("send", "x", "--kind", "host", "--size", "64x48", "--count", 1, "--wait-consumers", 1)
        self.run_program(*sent)
        self.finish(receiver)
        commands = (
            ("send", "x", "--size", "64x48", "--count", 1),
            ("replay", "take.rec", "x"),
            ("demo", "--seconds", 0.2, "--size", "64x48"),
            ("bench", "--quick", "--row", "acquire"),
        )
        for reason in self.without():
            for kind in ("vmm", "ipc"):
                for command in commands:
                    with self.subTest(command=command[0], kind=kind, reason=reason):
                        self.assertIn(reason, self.fail_program(*command, "--kind", kind, code=5))

    def test_consumers(self):
        for kind in ("vmm", "ipc"):
            sender = self.start_sender(kind)
            for reason in self.without():
                for command in (("recv", "x"), ("record", "x", "take")):
                    with self.subTest(command=command[0], kind=kind, reason=reason):
                        self.assertIn(reason, self.fail_program(*command, "--count", 1, code=5))
            self.interrupt(sender)

    def test_a_driver_that_refuses(self):
        """Frames that can't be mapped are no fault of the channel."""
        sender = self.start_sender("vmm")
        self.environment["FAKECUDA_FAIL"] = "cuMemImportFromShareableHandle:0:801"
        for command in (("recv", "x"), ("record", "x", "take")):
            with self.subTest(command=command[0]):
                error = self.fail_program(*command, "--count", 1, code=5)
                self.assertIn("CUDA_ERROR_NOT_SUPPORTED", error)
        self.interrupt(sender)

    def test_a_driver_that_fails(self):
        self.environment["FAKECUDA_FAIL"] = "cuInit:0:999"
        error = self.fail_program("send", "x", "--kind", "vmm", "--count", 1, code=5)
        self.assertIn("CUDA_ERROR_UNKNOWN", error)


class Fallbacks(OnFakeDriver):
    """Where no GPU is named auto never fails, and says what was in the way."""

    def demo(self):
        return self.run_json("demo", "--seconds", 0.2, "--size", "64x48")

    def test_no_driver(self):
        self.environment["LD_LIBRARY_PATH"] = "/nowhere"
        result = self.demo()
        if result["kind"] == "host":  # else this machine has one
            self.assertIn("no CUDA driver is installed", result["reason"])

    def test_no_gpu(self):
        self.environment["FAKECUDA_DEVICES"] = "0"
        result = self.demo()
        self.assertEqual(result["kind"], "host")
        self.assertIn("no GPU that it may use", result["reason"])
        self.environment["FAKECUDA_DEVICES"] = "1"
        self.environment["CUDA_VISIBLE_DEVICES"] = "7"
        reason = "no GPU that it may use (CUDA_VISIBLE_DEVICES is '7')"
        self.assertIn(reason, self.demo()["reason"])

    def test_descriptors_refused(self):
        self.environment["FAKECUDA_FAIL"] = "cuMemExportToShareableHandle:0:801"
        result = self.demo()
        self.assertEqual((result["kind"], result["path"]), ("ipc", PATHS["ipc"]))
        self.assertIn("CUDA_ERROR_NOT_SUPPORTED", result["reason"])
        self.assertIn("sharing by legacy handle worked when tried, by descriptor not", result["reason"])
        self.assertTrue(result["ok"])
        error = self.fail_program("demo", "--kind", "vmm", "--seconds", 0.2, code=5)
        self.assertIn("CUDA_ERROR_NOT_SUPPORTED", error)

    def test_nothing_can_be_shared(self):
        self.environment["FAKECUDA_FAIL"] = "cuMemExportToShareableHandle:0:801,cuIpcGetMemHandle:0:1"
        result = self.demo()
        self.assertEqual(result["kind"], "host")
        self.assertIn("CUDA_ERROR_NOT_SUPPORTED", result["reason"])
        self.assertIn("CUDA_ERROR_INVALID_VALUE", result["reason"])


main()
