# SPDX-License-Identifier: MIT
"""Every CUDALINK_ variable that src/, tools/ or the Python package reads is in docs/environment.md, and
every one that the page names is read. (That the page's table is the library's, the test environment_table says.)

Usage: check_environment.py ROOT
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])


def sources():
    for folder in ("src", "tools"):
        yield from sorted((ROOT / folder).rglob("*.[ch]"))


def read_by_python():
    """By functions of environment.py, which add the prefix, or by the whole name."""
    names = set()
    for path in sorted((ROOT / "python" / "cuda_link").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        asked = re.findall(r'environment\.(?:switch|number|word)\(\s*"([A-Z0-9_]+)"', text)
        names |= {"CUDALINK_" + name for name in asked}
        names |= set(re.findall(r'"(CUDALINK_[A-Z0-9_]*[A-Z0-9])"', text))
    return names


def identifiers():
    """Constants and macros of the headers have the prefix as well; strings name them in sentences."""
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "include").rglob("*.h"))
    return set(re.findall(r"\bCUDALINK_[A-Z0-9_]+\b", re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)))


def main():
    failures = []
    page = (ROOT / "docs" / "environment.md").read_text(encoding="utf-8")
    constants = identifiers()
    documented = set(re.findall(r"CUDALINK_[A-Z0-9_]+", page)) - constants
    table = (ROOT / "src" / "base" / "environment.h").read_text(encoding="utf-8")
    read = {"CUDALINK_" + name for name in re.findall(r"^ *X\(([A-Z0-9_]+),", table, re.MULTILINE)}
    if not read:
        failures.append("src/base/environment.h: where is the table?")
    python = read_by_python() - constants  # which errors of C are put in Python's words
    if len(python) < 20:
        failures.append("python/cuda_link: where are its variables read?")
    for path in sources():
        text = path.read_text(encoding="utf-8")
        where = path.relative_to(ROOT)
        for name in re.findall(r'"(CUDALINK_[A-Z0-9_]*[A-Z0-9])"', text):
            if name not in read | constants and not name.startswith("CUDALINK_ERROR_"):
                failures.append(f"{where}: {name} is not in the table of src/base/environment.h")
        if str(where) == "src/base/environment.c":
            continue
        for argument in re.findall(r"\bgetenv\(([^)]*)\)", text):
            if not argument.startswith('"'):
                failures.append(f"{where}: getenv({argument}) hides which variable is read")
    for name in sorted((read | python) - documented):
        failures.append(f"docs/environment.md does not say what {name} does")
    for name in sorted(documented - read - python):
        failures.append(f"docs/environment.md names {name}, which nobody reads")
    print("\n".join(failures) or f"{len(read)} variables, {len(python)} in Python")
    return bool(failures)


sys.exit(main())
