# SPDX-License-Identifier: MIT
"""Every reason with which a test skips itself is a line of tests/skip-reasons.txt, and every skip says one.

Usage: check_skip_reasons.py ROOT
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])
SAYS = (
    r'"skip: ([^"%{\\A-Z][^"%{\\]*)(?:\\n)?"',
    r'\bSKIP\("([^"]*)"\)',
    r'\bskipTest\("([^"]*)"\)',
    r'\bskip(?:If|Unless)\(.*, "([^"]*)"\)$',
    r'\bskipif\((?:.|\n){0,200}?\breason="([^"]*)"',
    r'\bpytest\.skip\("([^"]*)"\)',
)


def sources():
    for folder in ("tests", "python/tests"):
        for ending in ("*.c", "*.py"):
            yield from sorted((ROOT / folder).rglob(ending))


def without_reason(text):
    """Lines with cmocka's skip() or exit status 77 behind which no reason was printed just before."""
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if re.search(r"\bskip\(\);|\breturn 77;|\bexit\(77\)", line):
            if "skip: " not in "\n".join(lines[max(0, number - 3) : number + 1]):
                yield number + 1


def main():
    lines = (ROOT / "tests" / "skip-reasons.txt").read_text(encoding="utf-8").splitlines()
    known = {line for line in lines if line and not line.startswith("#")}
    wrong, used = [], set()
    for path in sources():
        if path.parent.name in ("scripts", "frameworks"):  # the latter run on a real GPU only, uncounted
            continue
        text = path.read_text(encoding="utf-8")
        said = {reason for pattern in SAYS for reason in re.findall(pattern, text, re.M) if reason}
        used |= said
        wrong += [f"{path}: '{reason}' is not in tests/skip-reasons.txt" for reason in sorted(said - known)]
        if path.suffix == ".c" and path.name != "inside.c":
            wrong += [f"{path}:{number}: says no reason" for number in without_reason(text)]
    if len(used) < 8:
        wrong.append(f"only {len(used)} reasons were found: what skips is no longer seen here")
    print("\n".join(wrong) or f"{len(used)} reasons, all listed")
    sys.exit(1 if wrong else 0)


main()
