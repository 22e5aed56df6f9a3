#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes a C string out of a script: embed.py peers/shared_memory_queue.py bench_python_peer.c"""
import sys


def main():
    source, target = sys.argv[1:]
    with open(source, "rb") as file:
        data = file.read() + b"\0"
    rows = [", ".join(str(byte) for byte in data[i : i + 24]) for i in range(0, len(data), 24)]
    with open(target, "w", encoding="ascii") as file:
        file.write('/* Made by embed.py. */\n#include "bench.h"\n\nconst char bench_python_peer[] = {\n    ')
        file.write(",\n    ".join(rows) + "};\n")


main()
