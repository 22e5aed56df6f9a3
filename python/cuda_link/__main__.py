# SPDX-License-Identifier: MIT
"""`python -m cuda_link ...` is the command-line program `cudalink`: the one in this package, else the one
on PATH."""

from __future__ import annotations

import os
import shutil
import sys

from cuda_link._place import in_package


def program() -> str | None:
    """Where the program is."""
    found = in_package("cudalink")
    return found if found and os.access(found, os.X_OK) else shutil.which("cudalink")


def main() -> None:
    """Becomes the program."""
    path = program()
    if path is None:
        sys.exit(
            "cuda_link: this installation has no program `cudalink`, and there is none on PATH. It is built "
            "where libpng can be linked statically (Debian: libpng-dev); or install it with `make install`"
        )
    os.execv(path, ["cudalink", *sys.argv[1:]])


if __name__ == "__main__":
    main()
