#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compiles and runs the C and C++ snippets of the documents.

A snippet is a block of README.md, docs/**/*.md or include/cudalink/*.h* between "```c" or "```cpp" and
"```"; in a header each line begins with " * ". Words after that say what it is:

  (none)     a whole program; it must end with 0 within the time limit
  fragment   the inside of main(); cudalink.h, the header that it is in, and libc's usual ones are added
  compile    is compiled only (can be added to fragment)
  producer   a whole program that is kept running while the consumers of the same file run
  consumer   a whole program that is run while the producers of the same file run
  cuda       includes cuda.h; is linked with the fake driver and runs on it (can be added to all others)

Code that is only indented, or in a block without a language, would never be compiled: that is an error.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

WORDS = {"fragment", "compile", "producer", "consumer", "cuda"}
FLAGS = ["-g", "-Wall", "-Wextra", "-Wno-unused", "-Werror"]
STANDARDS = {"c": "-std=gnu11", "cpp": "-std=c++17"}
TIME_LIMIT = 60  # seconds; only a snippet that hangs comes near
UMBRELLAS = {"c": "#include <cudalink/cudalink.h>\n", "cpp": "#include <cudalink/cudalink.hpp>\n"}
FRAGMENT_START = """\
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
"""
FRAGMENT_END = "\nreturn 0;\n}\n"
PATIENCE = re.compile(r"\b1000000000\b")  # a second, for readers; a busy machine takes longer
SEGMENT = re.compile(r'(?<=\.cipd_name = ")[^"]+')  # it lies in the folder that the whole machine shares


class Snippet:
    def __init__(self, path, line, language, words, code):
        self.place = f"{path}:{line}"
        self.path, self.line, self.language = path, line, language
        self.words, self.code = set(words), code

    def source(self):
        # With #line the compiler's messages name the document.
        body = f'#line {self.line + 1} "{self.path}"\n{self.code}'
        if "fragment" not in self.words:
            return body
        # A header's own snippet needs that header, which the umbrella header may leave out.
        own = f'#include "{self.path}"\n' if self.path.suffix == ".h" else ""
        return own + UMBRELLAS[self.language] + FRAGMENT_START + body + FRAGMENT_END


def looks_like_code(line, block):
    """A statement that is indented outside of blocks, or at any place in a block without a language."""
    if block not in (None, "```"):
        return False
    start = r" {4,}(?![-*|] )" if block is None else r" *"
    return re.match(start + r"(.*\w\(.*\)|.* = .*|return .*);$", line) is not None


def snippets_of(path, text):
    """The snippets of one file. Lines of a header lose their leading ' * '."""
    found, start, language, words, code = [], None, "", [], []
    other = None  # the opening line of a block of another language
    for number, line in enumerate(text.splitlines(), 1):
        is_text = path.suffix == ".md" or re.match(r"\s*\*( |$)", line)
        if path.suffix != ".md":
            line = re.sub(r"^\s*\* ?", "", line)
        stripped = line.strip()
        if start is None:
            match = None if other else re.fullmatch(r"```(c|cpp)((?:\s+\w+)*)", stripped)
            if stripped.startswith("```") and not match:
                other = None if other else stripped
            elif is_text and looks_like_code(line, other):
                sys.exit(f"{path}:{number}: looks like C, but is in no block that would be compiled")
            if match:
                start, language = number, match.group(1)
                words, code = match.group(2).split(), []
        elif stripped == "```":
            found.append(Snippet(path, start, language, words, "\n".join(code) + "\n"))
            start = None
        else:
            code.append(line)
    if start is not None:
        sys.exit(f"{path}:{start}: the block has no end")
    return found


def collect(root):
    files = [root / "README.md", *sorted((root / "docs").rglob("*.md"))]
    files += sorted((root / "include" / "cudalink").glob("*.h*"))
    found = []
    for file in files:
        if file.exists():
            found += snippets_of(file, file.read_text(encoding="utf-8"))
    for snippet in found:
        unknown = snippet.words - WORDS
        if unknown:
            sys.exit(f"{snippet.place}: unknown word {', '.join(sorted(unknown))}")
    return found


class Runner:
    def __init__(self, options, folder):
        self.options, self.folder = options, Path(folder)
        # Lists and consumers look in the usual folders, too: not in those of others.
        self.environment = dict(os.environ, CUDALINK_RUNTIME_DIR=str(self.folder / "run"))
        self.environment["TMPDIR"] = str(self.folder)
        self.environment.pop("XDG_RUNTIME_DIR", None)
        self.environment["FAKECUDA_DELAY_US"] = "3000"  # who names the wrong stream reads too early
        # Of nobody else, removed at the end; other tests that look for what is left know it by "test".
        self.segment = f"cudalink_test_snippets_{os.getpid()}"
        (self.folder / "run").mkdir(mode=0o700)
        self.failures = 0

    def fail(self, snippet, what, output):
        self.failures += 1
        print(f"{snippet.place}: {what}\n{output}")

    def compile(self, snippet, index):
        source = self.folder / f"snippet{index}.{snippet.language}"
        compiler = {"c": self.options.compiler, "cpp": self.options.cpp_compiler}[snippet.language]
        program = self.folder / f"snippet{index}"
        text = PATIENCE.sub(f"{TIME_LIMIT}000000000", SEGMENT.sub(self.segment, snippet.source()))
        source.write_text(text, encoding="utf-8")
        library = Path(self.options.library).resolve()
        command = [compiler, STANDARDS[snippet.language], *FLAGS, f"-I{self.options.include}", str(source)]
        command += ["-o", str(program), str(library), f"-Wl,-rpath,{library.parent}", "-lpthread"]
        if "cuda" in snippet.words:
            driver = Path(self.options.driver).resolve()
            command += [f"-I{Path(__file__).parent / 'include'}", str(driver), f"-Wl,-rpath,{driver.parent}"]
        result = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if result.returncode != 0:
            self.fail(snippet, "does not compile", result.stdout)
            return None
        return program

    def start(self, program, **where):
        return subprocess.Popen([program], cwd=self.folder, env=self.environment,
                                stdin=subprocess.DEVNULL, text=True, **where)

    def run(self, snippet, program):
        process = self.start(program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            output, _ = process.communicate(timeout=TIME_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            self.fail(snippet, f"still runs after {TIME_LIMIT} s", process.communicate()[0])
            return
        if process.returncode != 0:
            self.fail(snippet, f"ended with {process.returncode}", output)

    def run_beside(self, producers, consumers):
        running = []
        for snippet, program in producers:
            running.append((snippet, self.start(program, stdout=subprocess.DEVNULL)))
        for snippet, program in consumers:
            self.run(snippet, program)
        for snippet, process in running:
            if process.poll() not in (None, 0):
                self.fail(snippet, f"ended with {process.returncode}", "")
            process.kill()
            process.wait()

    def check(self, snippets):
        programs = []
        for index, snippet in enumerate(snippets):
            program = self.compile(snippet, index)
            if program and "compile" not in snippet.words:
                programs.append((snippet, program))
        pairs = {}
        for snippet, program in programs:
            role = snippet.words & {"producer", "consumer"}
            if role:
                sides = pairs.setdefault(snippet.path, {"producer": [], "consumer": []})
                sides[role.pop()].append((snippet, program))
            else:
                self.run(snippet, program)
        for sides in pairs.values():
            self.run_beside(sides["producer"], sides["consumer"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("compiler", "cpp-compiler", "include", "library", "driver", "root"):
        parser.add_argument(f"--{name}", required=True)
    options = parser.parse_args()

    snippets = collect(Path(options.root).resolve())
    if not snippets:
        sys.exit("no snippets found: has the way they are marked changed?")
    with tempfile.TemporaryDirectory(prefix="cudalink-snippets-") as folder:
        runner = Runner(options, folder)
        try:
            runner.check(snippets)
        finally:
            Path("/dev/shm", runner.segment).unlink(missing_ok=True)
    print(f"{len(snippets)} snippets, {runner.failures} failures")
    sys.exit(1 if runner.failures else 0)


main()
