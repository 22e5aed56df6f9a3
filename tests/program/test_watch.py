#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""watch in a pipe, as JSON, and as metrics for Prometheus."""

import http.client
import json
import os
import re
import signal
import socket
import stat

from program import MANUAL, ProgramTest, main

QUICK = ("--interval", 0.05)
SMALL = ("--size", "16x8", "--fps", 50)
CHANNEL_METRICS = {
    "cudalink_channel_up", "cudalink_channel_info", "cudalink_channel_frames_published_total",
    "cudalink_channel_frames_dropped_total", "cudalink_channel_newest_age_seconds",
    "cudalink_channel_open_seconds", "cudalink_channel_consumers", "cudalink_channel_slot_memory_bytes",
}  # fmt: skip
CONSUMER_METRICS = {
    "cudalink_consumer_held_frames", "cudalink_consumer_held_seconds", "cudalink_consumer_behind_frames",
    "cudalink_consumer_frames_received_total", "cudalink_consumer_frames_missed_total",
    "cudalink_consumer_latency_seconds",
}  # fmt: skip


LATENCY = r" \d+(?:\.\d)?(?: [µm]?s)?/\d+(?:\.\d)? [µm]?s(?: |$)"


class Connection(http.client.HTTPConnection):
    """HTTP through a UNIX socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


class Watch(ProgramTest):
    def send(self, name="x", *more):
        sender = self.start("send", name, *SMALL, *more)
        self.wait_for_line(sender, "channel ")
        return sender

    def looks(self, *arguments):
        out = self.ask("watch", "--json", *QUICK, *arguments)
        return [json.loads(line) for line in out.splitlines()]

    def test_none(self):
        looks = self.looks("--count", 2)
        self.assertEqual([look["channels"] for look in looks], [[], []])
        self.assertLess(looks[0]["time_ms"], looks[1]["time_ms"])
        self.assertEqual(self.run_program("watch", *QUICK, "--count", 1)[0], "CHANNEL\n\n")

    def test_json(self):
        sender = self.send()
        receiver = self.start("recv", "x")
        self.wait_for(lambda: self.looks("--count", 1)[0]["channels"][0]["consumers"], "a consumer")
        look = lambda: self.looks("--count", 1, "--interval", 0.3)[0]["channels"][0]  # noqa: E731
        self.wait_for(lambda: look()["fps"] > 0, "frames while it looks")
        channel = look()
        self.assertEqual(channel["consumers"][0]["pid"], receiver.pid)
        seen = {}

        def it_takes_frames():  # in the while of one look: in the next it may not be let run
            seen.update(look()["consumers"][0])
            return seen["fps"] > 0 and seen["latency_us"] is not None

        self.wait_for(it_takes_frames, "it takes frames")
        self.assertGreater(seen["latency_us"], 0)
        self.assertGreater(seen["latency_p50_us"], 0)
        self.assertGreaterEqual(seen["latency_p99_us"], seen["latency_p50_us"])
        self.assertGreater(seen["received"], 0)
        self.assertGreaterEqual(seen["missed"], 0)
        for process in (receiver, sender):
            self.interrupt(process)

    def test_sort_and_filter(self):
        senders = [self.send(name, *more) for name, more in [("a-b", ()), ("b", ("--slots", 5)), ("c", ())]]
        receiver = self.start("recv", "b")
        names = lambda *more: [c["name"] for c in self.looks("--count", 1, *more)[0]["channels"]]  # noqa: E731
        self.wait_for(lambda: names("--sort", "consumers")[0] == "b", "a consumer")
        self.assertEqual(names(), ["a-b", "b", "c"])
        self.assertEqual(names("--reverse"), ["c", "b", "a-b"])
        self.assertEqual(names("--sort", "consumers"), ["b", "a-b", "c"])
        self.assertEqual(names("--sort", "consumers", "--reverse"), ["c", "a-b", "b"])
        self.wait_for(lambda: names("--sort", "latency")[0] == "b", "its consumer's latency")
        self.assertEqual(names("--filter", "B"), ["a-b", "b"])
        self.assertEqual(names("--filter", "nothing"), [])
        # This filter leaves out who does not answer in time.
        self.wait_for(lambda: names("--kind", "host") == ["a-b", "b", "c"], "all three answer")
        self.assertEqual(names("--kind", "ipc"), [])
        for process in (receiver, *senders):
            self.interrupt(process)

    def test_text(self):
        sender = self.send()
        receiver = self.start("recv", "x", "--policy", "every")
        seen = []

        def consumer_has_latency():  # in this look: in the next there may be no frame
            seen[:] = [self.ask("watch", *QUICK, "--count", 1)]
            return len(re.findall(LATENCY, seen[0])) == 2

        self.wait_for(consumer_has_latency, "a consumer and its latency")
        title, channel, consumer, empty = seen[0].split("\n", 3)
        self.assertEqual(title.split()[:4], ["CHANNEL", "STATE", "KIND", "FPS"])
        self.assertEqual(title.count("LATENCY"), 1)
        for row in (channel, consumer):
            self.assertRegex(row, LATENCY)
        self.assertEqual(channel.split()[:2], ["x", "live"])
        self.assertTrue(consumer.startswith(f"└ cudalink {receiver.pid} "), consumer)
        self.assertEqual(empty, "\n")
        for process in (receiver, sender):
            self.interrupt(process)

    def test_closed_pipe(self):
        """watch | head -1"""
        for more in ((), ("--json",)):
            process = self.start("watch", *QUICK, *more)
            process.stdout.readline()
            process.stdout.close()
            process.stdout = None
            self.assertEqual(self.finish(process), ("", ""))

    def test_interrupt(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process = self.start("watch", *QUICK, "--json")
            process.stdout.readline()
            self.assertEqual(self.interrupt(process, number)[1], "")

    def test_mistakes(self):
        for arguments, text in [
            (["--interval", "0"], "0.05 or more"), (["--sort", "fp"], "did you mean fps?"),
            (["--prometheus", "70000"], "0 to 65535"), (["--prometheus", "x" * 200], "1 to 107 bytes"),
            (["--prometheus", ""], "1 to 107 bytes"), (["x"], "options only"),
        ]:  # fmt: skip
            self.assertIn(text, self.fail_program("watch", *arguments, code=2))
        self.assertIn("no/socket", self.fail_program("watch", "--prometheus", "no/socket", code=5))


class Prometheus(ProgramTest):
    def serve(self, place):
        process = self.start("watch", "--prometheus", place)
        return process, self.wait_for_line(process, "metrics at ").split(" at ", 1)[1].strip()

    def get(self, connection, path="/metrics", method="GET"):
        connection.request(method, path)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer, text

    def samples(self, text):
        """{name: [(labels, value)]}; every line has to be in order."""
        found = {}
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                metric, kind = line.split()[2:]
                found[metric] = []
            elif not line.startswith("#"):
                name, rest = line.split("{", 1)
                labels, value = rest.rsplit("} ", 1)
                if kind == "histogram":
                    self.assertRegex(name, f"^{metric}_(bucket|sum|count)$")
                    found.setdefault(name, [])
                found[name].append((labels, float(value)))
        return found

    def test_port(self):
        process, address = self.serve(0)
        self.assertTrue(address.startswith("http://127.0.0.1:"), address)
        port = int(address.split(":")[2].split("/")[0])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        answer, text = self.get(connection)
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
        self.assertEqual(set(self.samples(text)), CHANNEL_METRICS | CONSUMER_METRICS)
        manual = MANUAL.read_text(encoding="utf-8")
        self.assertEqual([name for name in self.samples(text) if f"`{name}`" not in manual], [])
        self.assertEqual(self.get(connection, "/other")[0].status, 404)
        self.assertEqual(self.get(connection, "/metrics", "POST")[0].status, 404)
        line = self.fail_program("watch", "--prometheus", port, code=5)
        self.assertIn("Address already in use", line)
        self.interrupt(process)

    def test_samples(self):
        name = 'quo"te \\ new\nline'
        sender = self.start("send", name, *SMALL)
        self.wait_for_line(sender, "channel ")
        receivers = [self.start("recv", name, "--policy", "every") for _ in range(2)]
        process, path = self.serve("metrics.sock")
        connection = Connection(self.path(path))

        samples = {}

        def two_have_come():
            samples.update(self.samples(self.get(connection)[1]))
            published = samples["cudalink_channel_frames_published_total"]
            return len(samples["cudalink_consumer_held_frames"]) == 2 and published[0][1] > 0

        self.wait_for(two_have_come, "two consumers")
        label = 'channel="quo\\"te \\\\ new\\nline",directory="' + str(self.channels) + '"'
        self.assertEqual(samples["cudalink_channel_up"], [(label, 1)])
        self.check_histogram(samples)
        self.assertEqual(len({labels for labels, _ in samples["cudalink_consumer_behind_frames"]}), 2)
        for other in (*receivers, sender, process):
            self.interrupt(other)

    def check_histogram(self, samples):
        """Of each consumer, as Prometheus wants it: counts that grow with their bounds up to the count of all."""
        metric = "cudalink_consumer_latency_seconds"
        counts = dict(samples[f"{metric}_count"])
        self.assertEqual(len(counts), 2)
        sums = dict(samples[f"{metric}_sum"])
        for labels, count in counts.items():
            start = f'{labels},le="'
            buckets = [(one[len(start) : -1], n) for one, n in samples[f"{metric}_bucket"] if one.startswith(start)]
            bounds = [float(bound) for bound, _ in buckets]
            self.assertEqual(len(bounds), 25)
            self.assertEqual(bounds, sorted(bounds))
            self.assertEqual(buckets[0][0], "1.024e-06")
            self.assertEqual(buckets[-1], ("+Inf", count))
            self.assertEqual([n for _, n in buckets], sorted(n for _, n in buckets))
            self.assertGreaterEqual(sums[labels], 0)

    def test_socket(self):
        """For this user only, gone at the end, and what a killed one left is replaced."""
        path = self.path("metrics.sock")
        process, _ = self.serve("metrics.sock")
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        line = self.fail_program("watch", "--prometheus", "metrics.sock", code=5)
        self.assertIn("Address already in use", line)
        process.kill()
        process.wait()
        process, _ = self.serve("metrics.sock")
        self.assertEqual(self.get(Connection(path))[0].status, 200)
        self.interrupt(process)
        self.assertFalse(os.path.exists(path))

    def test_file_in_the_way(self):
        with open(self.path("file"), "w", encoding="utf-8") as file:
            file.write("mine")
        self.assertIn("file", self.fail_program("watch", "--prometheus", "file", code=5))
        self.assertTrue(os.path.exists(self.path("file")))

    def test_slow_and_broken_clients(self):
        """One that says nothing, one that goes, one that says nonsense: the next is served."""
        process, _ = self.serve("metrics.sock")
        path = self.path("metrics.sock")
        silent = Connection(path)
        silent.connect()
        for text in (b"", b"nonsense\r\n\r\n", b"GET " + b"x" * 10000):
            client = socket.socket(socket.AF_UNIX)
            client.connect(path)
            try:
                client.sendall(text)
            except OSError:  # a request that long is not read to its end
                pass
            client.close()
        self.assertEqual(self.get(Connection(path))[0].status, 200)
        silent.close()
        self.interrupt(process)


main()
