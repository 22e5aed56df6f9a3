# SPDX-License-Identifier: MIT
"""What pip builds wheels with: meson-python, told that free-threaded CPython has no limited API that we could
use. (From 3.15 on it has one; wheels for each version go on being right.)"""

from __future__ import annotations

import sysconfig
from collections.abc import Mapping
from typing import Any

import mesonpy
from mesonpy import build_sdist, get_requires_for_build_sdist, get_requires_for_build_wheel

get_requires_for_build_editable = mesonpy.get_requires_for_build_editable
__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
]

NO_LIMITED_API = "-Dpython.allow_limited_api=false"


def settings_for(given: Mapping[str, Any] | None, free_threaded: bool) -> dict[str, Any]:
    """Who builds may still say otherwise: the last one counts."""
    settings = dict(given or {})
    if not free_threaded:
        return settings
    words = settings.get("setup-args", [])
    settings["setup-args"] = [NO_LIMITED_API, *([words] if isinstance(words, str) else words)]
    return settings


def _settings(given: Mapping[str, Any] | None) -> dict[str, Any]:
    return settings_for(given, bool(sysconfig.get_config_var("Py_GIL_DISABLED")))


def build_wheel(
    directory: str, settings: Mapping[str, Any] | None = None, metadata: str | None = None
) -> str:
    """Builds the wheel."""
    return mesonpy.build_wheel(directory, _settings(settings), metadata)


def build_editable(
    directory: str, settings: Mapping[str, Any] | None = None, metadata: str | None = None
) -> str:
    """Builds what `pip install -e` installs."""
    return mesonpy.build_editable(directory, _settings(settings), metadata)
