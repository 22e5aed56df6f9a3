#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the programs of examples/c against each other. With --gpu there is a GPU, if only the fake one:
then they must use it."""
import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

LIMIT = 60  # seconds; only a hang comes near
OPTIONS = None
# What render_cuda's frames begin with: the bar at the left edge (bright), then the ground (dark).
WHOLE = ["255"] + ["16"] * 19


class Example(unittest.TestCase):
    def setUp(self):
        self.channels = Path(tempfile.mkdtemp(prefix="cudalink-examples-"))
        # Consumers look in the usual folders, too: not in those of others.
        self.environment = dict(os.environ, CUDALINK_RUNTIME_DIR=str(self.channels), TMPDIR=str(self.channels))
        self.started = []

    def tearDown(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        left = [path.name for path in self.channels.iterdir()]
        shutil.rmtree(self.channels)
        self.assertEqual(left, [], "an example left files of channels behind")

    def start(self, name, *arguments):
        process = subprocess.Popen(
            [Path(OPTIONS.folder) / name, *map(str, arguments)], env=self.environment, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.started.append(process)
        return process

    def finish(self, process):
        """Waits for its good end. Returns its lines."""
        out, errors = process.communicate(timeout=LIMIT)
        self.assertEqual((process.returncode, errors), (0, ""), f"{process.args}\n{out}")
        return out.splitlines()

    def run_pair(self, producer, consumer):
        """The consumer is there first, so that it gets every frame. The lines of both."""
        receiver = self.start(*consumer)
        sender = self.start(*producer)
        return self.finish(sender), self.finish(receiver)

    def list_channels(self):
        return self.finish(self.start("channels"))


class Examples(Example):
    def test_producer_and_consumer(self):
        sent, received = self.run_pair(("producer", "tour", 30, 1), ("consumer", "tour"))
        self.assertIn("path: gpu vmm" if OPTIONS.gpu else "path: host memfd", sent[0])
        self.assertEqual(sent[1:], ["30 frames"])
        expected = [f"frame {n + 1}: 640x480, first byte {n}, missed 0" for n in range(30)]
        self.assertEqual(received, expected + ["ended"])

    def test_ctrl_c_ends_a_producer(self):
        producer = self.start("producer", "tour")
        self.assertIn("path:", producer.stdout.readline())
        producer.send_signal(signal.SIGINT)
        self.assertRegex("\n".join(self.finish(producer)), r"^\d+ frames$")

    def test_a_consumer_goes_on_with_the_next_producer(self):
        consumer = self.start("consumer", "tour")
        first = self.start("producer", "tour", 0, 1)
        self.assertIn("frame 1:", consumer.stdout.readline())
        first.kill()
        first.wait()
        self.finish(self.start("producer", "tour", 3, 1))
        text = "\n".join(self.finish(consumer))
        self.assertIn("the producer died", text)
        self.assertRegex(text, r"frame 3: [^\n]*\nended$")

    def test_render_cuda(self):
        sent, received = self.run_pair(("render_cuda", "bar", 20), ("consumer", "bar"))
        if OPTIONS.gpu:
            self.assertEqual(sent, [])
        else:
            self.assertEqual(len(sent), 1)
            self.assertIn("the CPU draws", sent[0])
        self.assertEqual(self.colors(received), WHOLE)

    def colors(self, received):
        return [line.split("first byte ")[1].split(",")[0] for line in received[:-1]]

    def test_without_its_wait_render_cuda_tears_frames(self):
        if not OPTIONS.without_wait:
            return  # the CPU that draws has nothing to wait for
        self.environment["FAKECUDA_DELAY_US"] = "3000"
        for seed in range(20):  # the first one does
            self.environment["FAKECUDA_SEED"] = str(seed)
            sent, received = self.run_pair((OPTIONS.without_wait, "bar", 20), ("consumer", "bar"))
            torn = self.colors(received) != WHOLE
            sent, received = self.run_pair(("render_cuda", "bar", 20), ("consumer", "bar"))
            self.assertEqual(self.colors(received), WHOLE)
            if torn:
                return
        self.fail("no frame was torn: the delays are too short, or something else waits")

    def test_work_that_is_late_ends_before_its_memory(self):
        if not OPTIONS.without_wait:
            return
        delay = {"FAKECUDA_DELAY_US": "200000", "FAKECUDA_SEED": "1"}  # the picture is not drawn yet at close
        for producer in (OPTIONS.without_wait, "render_cuda"):
            self.environment["FAKECUDA_DELAY_US"] = "0"
            receiver = self.start("consumer", "bar")
            self.environment.update(delay)
            self.assertEqual(self.finish(self.start(producer, "bar", 1)), [])
            self.finish(receiver)

    def test_planes(self):
        sent, received = self.run_pair(("planes", "send"), ("planes", "receive"))
        self.assertEqual(sent, [])
        self.assertTrue(received)
        for line in received:
            match = re.fullmatch(r"frame (\d+): color (\d+), depth (\d+)", line)
            self.assertTrue(match and len(set(match.groups())) == 1, line)

    def test_epoll_loop(self):
        loop = self.start("epoll_loop", "a", "b")
        producers = [self.start("producer", name, 20, 1) for name in ("a", "b")]
        for producer in producers:
            self.finish(producer)
        text = "\n".join(self.finish(loop))
        for name in ("a", "b"):
            match = re.search(rf"^{name} ended after (\d+) frames$", text, re.M)
            self.assertTrue(match and 0 < int(match.group(1)) <= 20, text)

    def test_ctrl_c_ends_an_epoll_loop(self):
        loop = self.start("epoll_loop", "nobody")
        self.assertIn("nobody: 0 frames", loop.stdout.readline() or "")
        loop.send_signal(signal.SIGINT)
        self.finish(loop)

    def test_workers_share_frames(self):
        sent, received = self.run_pair(("producer", "work", 60, 3), ("workers", "work", 3))
        self.assertEqual(sent[-1], "60 frames")
        frames = [int(line.split("frame ")[1]) for line in received]
        self.assertEqual(sorted(frames), list(range(1, 61)), "each frame went to exactly one worker")

    def test_resize(self):
        sent, received = self.run_pair(("resize", "sizes"), ("consumer", "sizes"))
        self.assertEqual(len(sent), 5, sent)
        memory = [int(line.split("memory number ")[1].split(",")[0]) for line in sent]
        self.assertEqual(memory, [1, 1, 2, 2, 3], "only larger pictures need new memory")
        sizes = [line.split(": ")[1].split(",")[0] for line in received[:-1]]
        expected = ["640x480", "320x240", "1920x1080", "1920x1080", "2560x1440"]
        self.assertEqual(sizes, [size for size in expected for _ in range(20)])

    def test_channels(self):
        self.assertEqual(self.list_channels(), ["no channels"])
        producer = self.start("producer", "tour")
        self.assertIn("path:", producer.stdout.readline())
        lines = self.list_channels()
        self.assertIn(f"tour: producer ({producer.pid}), ", lines[0])
        producer.send_signal(signal.SIGTERM)
        self.finish(producer)

    def test_sources_are_short(self):
        sources = sorted(path for path in Path(OPTIONS.sources).rglob("*")
                         if path.suffix in (".c", ".h", ".cpp"))
        self.assertGreater(len(sources), 8)
        for source in sources:
            lines = source.read_text(encoding="utf-8").count("\n")
            self.assertLess(lines, 100, f"{source.name} is no example any more")


def main():
    global OPTIONS
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", required=True, help="of the built programs")
    parser.add_argument("--sources", required=True)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--without-wait", help="render_cuda with its wait taken out")
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)


main()
