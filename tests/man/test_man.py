#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The manual pages: all there, complete, without a warning of man(1), groff or mandoc. And the scripts that
make them refuse what they don't understand."""
import argparse
import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

OPTIONS = None
# As lintian calls man(1), for 80 columns.
MAN = ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z"]
READERS = {"man": MAN, "groff": ["groff", "-man", "-ww", "-z"],
           "mandoc": ["mandoc", "-Tlint", "-Wwarning"]}


def run(*command, **options):
    environment = dict(os.environ, LC_ALL="C.UTF-8", MANROFFSEQ="", MANWIDTH="80", SOURCE_DATE_EPOCH="0")
    return subprocess.run([str(word) for word in command], text=True, env=environment,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def script(name):
    return Path(OPTIONS.root) / "scripts" / name


@functools.lru_cache(maxsize=None)
def rendered(page):
    """As plain text, with single spaces; in lines that hold the longest name twice."""
    text = run("groff", "-man", "-rLL=120n", "-Tascii", "-P-cbou", page).stdout
    return " ".join(text.split())


class Pages(unittest.TestCase):
    def setUp(self):
        self.folder = Path(OPTIONS.pages)
        self.pages = sorted(path for path in self.folder.iterdir() if re.fullmatch(r"\.[137]", path.suffix))
        self.headers = sorted((Path(OPTIONS.root) / "include/cudalink").glob("*.h"))

    def declared(self):
        text = "".join(header.read_text(encoding="utf-8") for header in self.headers)
        return set(re.findall(r"^CUDALINK_API[^;(]*?\b(cudalink_\w+)\(", text, re.M))

    def test_each_function_has_a_page(self):
        declared = self.declared()
        self.assertGreater(len(declared), 40)
        self.assertEqual({page.stem for page in self.pages if page.suffix == ".3"}, declared)
        for name in declared:
            text = rendered(self.folder / f"{name}.3")
            self.assertRegex(text, rf"NAME {name} - \S.* SYNOPSIS #include <cudalink/\w+\.h> ")
            self.assertRegex(text, rf"SYNOPSIS .*\b{name}\([^;]*\); .*DESCRIPTION \S+ \S+ ")
            self.assertIn("SEE ALSO cudalink(7)", text)

    def test_statistics_are_counters(self):
        # A comment between a struct and the function behind it would become the function's text.
        for side in ("exporter", "importer"):
            name = f"cudalink_{side}_get_statistics"
            self.assertRegex(rendered(self.folder / f"{name}.3"), rf"NAME {name} - counters ")

    def test_references_lead_somewhere(self):
        known = {page.name for page in self.pages} | {"cudalink.1"}
        for page in self.pages:
            for name, section in re.findall(r"\b(cudalink\w*)\(([137])\)", rendered(page)):
                self.assertIn(f"{name}.{section}", known, f"in {page.name}")

    def test_comments_arrive(self):
        begin = rendered(self.folder / "cudalink_exporter_begin.3")
        self.assertIn("RETURN VALUE CUDALINK_OK (0), or a negative cudalink_error", begin)
        self.assertRegex(begin, "ERRORS BUSY .* INVALID_ARGUMENT .* TYPES typedef struct")
        self.assertIn("size_t size;", rendered(self.folder / "cudalink_exporter_open.3"))
        overview = rendered(self.folder / "cudalink.7")
        for text in ("Times are nanoseconds of CLOCK_MONOTONIC", "CUDALINK_ERROR_BUSY (-4)",
                     "cudalink_importer_acquire(3) takes the next frame"):
            self.assertIn(text, overview)
        # Text as the header has it, with all signs that mean something in roff.
        self.assertIn(r'return fprintf(stderr, "%s\n", cudalink_last_error()), 1;',
                      rendered(self.folder / "cudalink_exporter.7"))

    def test_streams_and_devices_are_named(self):
        page = rendered(self.folder / "cudalink_stream.7")
        for name in ("COMPLETE", "LEGACY", "PER_THREAD", "HANDLE(h)", "EVENT(h)"):
            self.assertRegex(page, rf"#define CUDALINK_STREAM_{re.escape(name)} (\\ )?cudalink_stream_make\(")
        self.assertIn("#define CUDALINK_DEVICE(ordinal) ((ordinal) + 1)", rendered(self.folder / "cudalink_frame.7"))
        publish = rendered(self.folder / "cudalink_exporter_publish.3")
        self.assertRegex(publish, r"SEE ALSO .*cudalink_stream\(7\)")

    def test_the_program_tells_everything(self):
        if not OPTIONS.program:
            self.skipTest("needs the program")
        text = rendered(self.folder / "cudalink.1")
        overview = run(OPTIONS.program, "--help").stdout
        commands = re.findall(r"^  ([a-z]+) ", overview.split("exit codes")[0], re.M)
        self.assertIn("send", commands)
        for command in commands:
            self.assertIn(f"cudalink {command}", text)
            for option in re.findall(r"^  (--[\w-]+)", run(OPTIONS.program, command, "--help").stdout, re.M):
                self.assertIn(option, text)
        for code in re.findall(r"^  (\d+ +\S.*)$", overview, re.M):
            self.assertIn(" ".join(code.split()), text)

    def test_no_reader_warns(self):
        readers = {name: command for name, command in READERS.items() if shutil.which(name)}
        self.assertTrue({"groff"} <= set(readers), "groff is needed")
        self.assertGreater(len(self.pages), 50)
        for name, command in readers.items():
            if self.warnings(command, self.pages):  # man(1) does not say which page it means
                said = {page.name: self.warnings(command, [page]) for page in self.pages}
                self.fail(f"{name}: " + "\n".join(f"{page}: {text}" for page, text in said.items() if text))

    def warnings(self, command, pages):
        result = run(*command, *pages)
        warned = result.stderr + (result.stdout if command[0] == "mandoc" else "")
        return warned or (f"ended with {result.returncode}" if result.returncode else "")

    def test_every_day_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            one, two = Path(folder) / "1", Path(folder) / "2"
            for target in (one, two):
                target.mkdir()
                template = Path(OPTIONS.root) / "docs/man/cudalink.7.in"
                made = run(script("man-pages"), "write", "1.2.3", template, target, *self.headers)
                self.assertEqual((made.returncode, made.stderr), (0, ""))
            self.assertIn("1970-01-01", (one / "cudalink.7").read_text())
            for page in one.iterdir():
                self.assertEqual(page.read_bytes(), (two / page.name).read_bytes())


class Scripts(unittest.TestCase):
    def try_header(self, text):
        """man-pages with a header of these lines behind base.h's first comment."""
        with tempfile.TemporaryDirectory() as folder:
            header = Path(folder) / "base.h"
            header.write_text("/* SPDX-License-Identifier: MIT\n *\n * cudalink/base.h - a test.\n */\n" + text)
            return run(script("man-pages"), "list", header)

    def test_a_function_without_a_comment(self):
        self.assertEqual(self.try_header("/* Does it. */\nCUDALINK_API int cudalink_do(void);\n").stdout,
                         "cudalink_do.3\ncudalink.7\n")
        result = self.try_header("CUDALINK_API int cudalink_do(void);\n")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("cudalink_do has no comment", result.stderr)

    def test_a_function_behind_a_gap(self):
        text = "/* Does it. */\nCUDALINK_API int cudalink_do(void);\n%sCUDALINK_API int cudalink_undo(void);\n"
        self.assertIn("cudalink_undo.3", self.try_header(text % "").stdout)
        self.assertIn("cudalink_undo has no comment", self.try_header(text % "\n").stderr)
        self.assertIn("cudalink_undo has no comment", self.try_header(text % "/* ---- more ---- */\n").stderr)

    def test_a_program_without_options(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "program"
            program.write_text("#!/bin/sh\necho 'usage: cudalink COMMAND'\n")
            program.chmod(0o755)
            template = Path(OPTIONS.root) / "docs/man/cudalink.1.in"
            result = run(script("man-program"), program, "1.2.3", template)
            self.assertNotEqual(result.returncode, 0)
            self.assertIn("nothing under 'commands:'", result.stderr)


def main():
    global OPTIONS
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("pages", "root", "program"):
        parser.add_argument(f"--{name}", required=name != "program")
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest], verbosity=2)


main()
