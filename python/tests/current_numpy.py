#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""current_numpy.py FOLDER PYTHON-ARGUMENT...: runs Python with today's NumPy and pytest of PyPI, in an
environment that is made in FOLDER and kept there; the other tests have the distribution's. Without PyPI
FOLDER stays as it is, and the test is skipped when there is nothing in it."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

WANTED = ("numpy", "pytest")
HAS = "import numpy, pytest; print(f'NumPy {numpy.__version__}, pytest {pytest.__version__}', flush=True)"


def python_of(folder: Path) -> str | None:
    """The Python of the environment; None where nothing can be fetched for it."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True, clear=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--upgrade", "--retries", "0", "--only-binary=:all:"]
    quiet = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    subprocess.run([*pip, *WANTED], env=quiet)
    return str(python) if subprocess.run([python, "-c", HAS]).returncode == 0 else None


def main() -> int:
    try:
        import ensurepip  # noqa: F401
    except ImportError:
        print("skip: needs python3-venv")
        return 77
    python = python_of(Path(sys.argv[1]))
    if python is None:
        print("skip: needs PyPI")
        return 77
    return subprocess.run([python, *sys.argv[2:]]).returncode


if __name__ == "__main__":
    sys.exit(main())
