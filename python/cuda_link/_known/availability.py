# SPDX-License-Identifier: MIT
"""Which optional packages are there. They are looked for, not imported."""

from __future__ import annotations

from importlib.util import find_spec

TORCH_AVAILABLE = find_spec("torch") is not None
CUPY_AVAILABLE = find_spec("cupy") is not None
NUMPY_AVAILABLE = find_spec("numpy") is not None
