# SPDX-License-Identifier: MIT
"""The names that users of the project cuda-link (v1.x) have in their scripts, over the modern face."""
