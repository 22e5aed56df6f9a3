# SPDX-License-Identifier: MIT
"""Where the package's library and program are."""

from __future__ import annotations

from importlib.resources import files


def in_package(name: str) -> str | None:
    """The path of a file of this package. In an editable installation it is not beside the modules, but
    where it was built."""
    found = files(__package__).joinpath(name)
    return str(found) if found.is_file() else None
