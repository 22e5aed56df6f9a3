# SPDX-License-Identifier: MIT
"""Which of the two back ends runs: `_core` (a C extension) or `_pure` (ctypes).

CUDALINK_PYTHON_BACKEND=core or =pure asks for one of them; else `_core` is taken where it can be
loaded.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import NamedTuple

VARIABLE = "CUDALINK_PYTHON_BACKEND"


class Backend(NamedTuple):
    """The back end that this process uses."""

    name: str
    """"core" or "pure"."""
    reason: str
    """Why this one, in words."""
    library_version: str
    """Of the C library that is loaded."""


def _load() -> tuple[ModuleType, str, str]:
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", "core", "pure"):
        raise ImportError(f"{VARIABLE} is {wanted!r}; it may be core, pure, or not set")
    if wanted != "pure":
        try:
            core = importlib.import_module("cuda_link._core")
            return core, "core", f"{VARIABLE} asks for it" if wanted else "the C extension could be loaded"
        except ImportError as error:
            if wanted:
                raise ImportError(
                    f"{VARIABLE} asks for the C extension, which can't be loaded: {error}"
                ) from error
            reason = f"the C extension can't be loaded: {error}"
    else:
        reason = f"{VARIABLE} asks for it"
    return importlib.import_module("cuda_link._pure"), "pure", reason


def _dotted(version: int) -> str:
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


low, _name, _reason = _load()
backend = Backend(_name, _reason, _dotted(low.version()))
