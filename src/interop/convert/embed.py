#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes a C file out of convert.ptx: embed.py convert.ptx convert_ptx.c

Numbers instead of a string, because compilers limit the length of strings. Comments and empty lines
are left out; the driver does not need them.
"""
import sys


def main():
    source, target = sys.argv[1:]
    with open(source, encoding="ascii") as file:
        lines = [line.rstrip() for line in file]
    kept = [line for line in lines if line and not line.lstrip().startswith("//")]
    data = "\n".join(kept).encode() + b"\n\0"
    rows = [", ".join(str(byte) for byte in data[i : i + 24]) for i in range(0, len(data), 24)]
    with open(target, "w", encoding="ascii") as file:
        file.write('/* Made by embed.py from convert.ptx. */\n#include "interop/convert/kernels.h"\n\n')
        file.write("const char convert_ptx[] = {\n    " + ",\n    ".join(rows) + "};\n")


main()
