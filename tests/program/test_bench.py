# SPDX-License-Identifier: MIT
"""What cudalink bench shows; never how fast anything was."""

import json
import resource
import shlex
import signal
import xml.etree.ElementTree as xml
from pathlib import Path

from program import FAKE_DRIVER, PROGRAM, ProgramTest, main
from tmux import TmuxTest

SVG = "{http://www.w3.org/2000/svg}"


class BenchTest(ProgramTest):
    def test_a_row_as_json(self):
        result = self.run_json("bench", "--quick", "--row", "acquire")
        self.assertEqual([row["name"] for row in result["results"]], ["acquire"])
        row = result["results"][0]
        self.assertLessEqual(row["min"], row["p50"])
        self.assertLessEqual(row["p50"], row["p99"])
        self.assertGreater(row["floor"], 0)

    def test_a_histogram_counts_every_sample(self):
        out, _ = self.run_program("bench", "--quick", "--row", "begin", "--histogram")
        lines = [line for line in out.splitlines() if " ns " in line and not line.startswith("begin")]
        self.assertEqual(len(lines), 20)
        self.assertTrue(lines[-1].lstrip().startswith(">="))
        counts = [int(line.split()[-1]) for line in lines]
        self.assertEqual(sum(counts), 2 * 2001)  # two turns of a fifth of the rounds, and one

    def test_a_plot_has_a_panel(self):
        self.run_program("bench", "--quick", "--row", "acquire", "--plot", self.path("p.svg"))
        root = xml.parse(self.path("p.svg")).getroot()
        self.assertEqual(len(root.findall(SVG + "g")), 1)
        texts = " ".join(text.text for text in root.iter(SVG + "text"))
        self.assertIn("acquire + release of a ready frame", texts)
        self.assertIn("target 150", texts)

    def test_a_plot_that_cannot_be_written(self):
        _, errors = self.run_program("bench", "--quick", "--row", "begin", "--plot", "/dev/full", code=4)
        self.assertIn("/dev/full can't be written: No space left on device", self.one_line(errors))

    def row(self, name, *more):
        return self.run_json("bench", "--quick", "--row", name, *more)["results"][0]

    def test_list(self):
        row = self.row("list_200")
        self.assertEqual((row["unit"], row["target"]), ("ms", 50))
        self.assertGreater(row["min"], 0)
        self.assertGreater(self.row("list_200_cpu")["min"], 0)

    def test_pictures_through_python(self):
        self.assertGreater(self.row("picture_python")["min"], 0)
        self.environment["PATH"] = self.path("nothing")
        self.assertEqual(self.row("picture_python")["left_out"], "there is no python3")

    def test_watch(self):
        row = self.row("handover_watched")
        self.assertGreater(row["floor"], 0)
        self.assertAlmostEqual(row["target"] / row["floor"], 1.1, places=3)

    def test_record(self):
        """Counts what was missed, or says that the disk is too slow for it."""
        row = self.row("record_1080p60")
        if "left_out" in row:
            self.assertRegex(row["left_out"], r"takes \d+ MB/s, 1080p60 RGBA8 is 498")
        else:
            self.assertEqual((row["unit"], row["target"]), ("frames", 0))
            self.assertGreaterEqual(row["min"], 0)

    def test_record_without_a_disk_that_can(self):
        limit = (1 << 20, 1 << 20)
        line = self.run_json(
            "bench", "--quick", "--row", "record_writing",
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
        )["results"][0]  # fmt: skip
        self.assertIn("takes 0 MB/s", line["left_out"])
        self.assertTrue(line["ok"])

    def test_figures_of_the_original(self):
        """On the fake driver: each has its published figure beside it, most have a floor."""
        self.environment["LD_LIBRARY_PATH"] = FAKE_DRIVER
        for name, published in (
            ("old_export_512_f32", "24"),
            ("old_export_1080p_u8", "13.9"),
            ("old_numpy_512", "0.18"),
            ("old_get_frame", "below 5"),
            ("old_notify", "136 to 286"),
            ("old_open", "50 to 100"),
        ):
            row = self.row(name, "--kind", "vmm")
            self.assertEqual(row["published"], published)
            self.assertGreater(row["p50"], 0)
            self.assertTrue(row["floor"] or name == "old_open", row)
        text = self.run_program("bench", "--quick", "--kind", "ipc", "--row", "old_export_512_f32")[0]
        self.assertTrue(text.endswith("; published: 24\n"), text)

    def test_rows_of_another_kind(self):
        self.assertIn("not for frames of kind host", self.row("old_notify", "--kind", "host")["left_out"])

    def test_ctrl_c_leaves_nothing(self):
        """No process, no folder; wherever it is."""
        for row in ("handover_watched", "record_1080p60"):
            bench = self.start("bench", "--row", row, "--json", start_new_session=True)
            self.wait_for(lambda: self.others(bench), "it has started the program")
            bench.send_signal(signal.SIGINT)
            self.assertEqual(self.finish(bench, 130), ("", ""))
            self.wait_for(lambda: not self.others(bench), "all have ended")
            self.assertEqual(list(self.folder.glob("cudalink-bench-*")), [])

    def others(self, bench):
        """The processes of its session in which the program was started anew."""
        return [place for place in Path("/proc").glob("[0-9]*") if self.is_anew(place, bench)]

    @staticmethod
    def is_anew(place, bench):
        try:
            session = int((place / "stat").read_text().rpartition(")")[2].split()[3])
            return session == bench.pid and (place / "cmdline").read_bytes().startswith(b"cudalink\0")
        except OSError:  # it has just ended
            return False

    def test_where_it_was_measured(self):
        host = self.run_json("bench", "--quick", "--row", "begin", "--kind", "host")["machine"]
        self.check_documented("bench", {"machine", *host})
        self.assertEqual((host["gpu"], host["driver"], host["cuda"]), (None, None, None))
        self.environment["LD_LIBRARY_PATH"] = FAKE_DRIVER
        self.environment["FAKECUDA_DEVICES"] = "2"
        for device, name in (((), "Fake H200 0"), (("--device", 1), "Fake H200 1")):
            machine = self.run_json("bench", "--quick", "--row", "begin", *device)["machine"]
            self.assertEqual((machine["gpu"], machine["cuda"]), (name, "13.0"))
        module = Path("/sys/module/nvidia/version")
        self.assertEqual(machine["driver"], module.read_text().strip() if module.exists() else None)
        out, _ = self.run_program("bench", "--quick", "--row", "begin")
        self.assertRegex(out.splitlines()[1], r"^Fake H200 0, (driver [\d.]+, )?CUDA 13\.0$")

    def test_no_such_row(self):
        for row, said in (("han", "see --list"), ("handovr", "did you mean handover?")):
            error = self.fail_program("bench", "--row", row, code=2)
            self.assertIn(f'no row "{row}"; {said}', error)

    def test_rows_are_listed(self):
        out, _ = self.run_program("bench", "--list")
        self.assertIn("handover ", out)
        lines = self.run_program("bench", "--list", "--json")[0].splitlines()
        rows = [json.loads(line) for line in lines]
        self.assertEqual([row["name"] for row in rows], [line.split()[0] for line in out.splitlines()])
        for row in rows:
            self.check_documented("bench", set(row))
            self.assertTrue(row["kinds"])


class OnATerminal(TmuxTest):
    def test_progress(self):
        """Which row it is at, on stderr, and nothing of that is left."""
        self.open_shell(columns=120)
        self.type(f"{shlex.quote(PROGRAM)} bench --row list_200 --json > {self.path('out')}", "Enter")
        self.wait_screen(r"^row 1 of 1: list_200, ")
        self.wait_screen(r"(?s)^((?!row 1 of 1).)*shell> *$")
        self.assertEqual(len(json.loads(Path(self.path("out")).read_text())["results"]), 1)


if __name__ == "__main__":
    main()
