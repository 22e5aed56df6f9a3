# SPDX-License-Identifier: MIT
"""`python -m cuda_link ...`, and the command `cudalink` that pip installs, are the command-line program
`cudalink`: the one in this package, else the one on PATH."""

from __future__ import annotations

import os
import shutil
import sys

from cuda_link._place import in_package


def _is_script(path: str) -> bool:
    """pip's own command of that name would only come back here, for ever."""
    try:
        with open(path, "rb") as file:
            return file.read(2) == b"#!"
    except OSError:  # nothing that is run by an interpreter
        return False


def _on_path() -> str | None:
    for folder in os.get_exec_path():
        found = shutil.which("cudalink", path=folder)
        if found and not _is_script(found):
            return found
    return None


def program() -> str | None:
    """Where the program is."""
    found = in_package("cudalink")
    return found if found and os.access(found, os.X_OK) else _on_path()


def main() -> None:
    """Becomes the program."""
    path = program()
    if path is None:
        sys.exit(
            "cuda_link: this installation has no program `cudalink`, and there is none on PATH. It is built "
            "where libpng can be linked statically (Debian: libpng-dev): install that, then the package "
            "anew with `pip install --force-reinstall`; or install the program with `make install`"
        )
    os.execv(path, ["cudalink", *sys.argv[1:]])


if __name__ == "__main__":
    main()
