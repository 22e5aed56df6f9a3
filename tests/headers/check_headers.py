#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""check_headers.py INCLUDE_DIRECTORY INSTALLED_HEADER...

Every header in INCLUDE_DIRECTORY/cudalink compiles alone and twice in a row, with every compiler
here, as C11 and as C++17, all warnings being errors; those for C++ also as C++20 and without
exceptions. And every header there is on the list of those that are installed.
"""
import shutil
import subprocess
import sys
from pathlib import Path

WARNINGS = "-Wall -Wextra -Wpedantic -Wshadow -Wundef -Wconversion -Wsign-conversion -Werror".split()
C_FLAGS = ["-x", "c", "-std=c11", "-Wmissing-prototypes", "-Wstrict-prototypes"]
CXX_FLAGS = ["-x", "c++", "-std=c++17"]
CXX_VARIANTS = [[], ["-std=c++20"], ["-fno-exceptions", "-fno-rtti"]]
COMPILERS = {"gcc": C_FLAGS, "clang": C_FLAGS, "g++": CXX_FLAGS, "clang++": CXX_FLAGS}


def compiles(compiler, flags, include_directory, header):
    source = f"#include <cudalink/{header.name}>\n" * 2
    command = [compiler, *flags, *WARNINGS, "-fsyntax-only", f"-I{include_directory}", "-"]
    result = subprocess.run(command, input=source, text=True, stderr=subprocess.PIPE)
    if result.returncode != 0:
        print(f"{header.name} with {compiler}:\n{result.stderr}")
    return result.returncode == 0


def main():
    include_directory = Path(sys.argv[1])
    installed = {Path(argument).resolve() for argument in sys.argv[2:]}
    headers = sorted((include_directory / "cudalink").glob("*.h*"))
    if not headers:
        sys.exit(f"no headers in {include_directory}/cudalink")

    failures = []
    for header in headers:
        if header.resolve() not in installed:
            failures.append(f"{header.name} is not in include/meson.build")

    compilers = {name: flags for name, flags in COMPILERS.items() if shutil.which(name)}
    for flags in (C_FLAGS, CXX_FLAGS):
        if flags not in compilers.values():
            failures.append(f"no compiler for {' '.join(flags)}")
    for compiler, flags in compilers.items():
        for header in headers:
            if flags is C_FLAGS and header.suffix == ".hpp":
                continue
            for more in CXX_VARIANTS if header.suffix == ".hpp" else [[]]:
                if not compiles(compiler, flags + more, include_directory, header):
                    failures.append(f"{header.name} does not compile with {compiler} {' '.join(more)}")

    print(f"{len(headers)} headers, compilers: {', '.join(compilers)}")
    for failure in failures:
        print(failure)
    sys.exit(1 if failures else 0)


main()
