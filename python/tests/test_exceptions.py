# SPDX-License-Identifier: MIT
"""Exceptions between Python and C: what is raised is told whole, and nothing that ends meanwhile hides it."""

from __future__ import annotations

import cuda_link
import pytest


@pytest.mark.parametrize("letter", ["é", "€", "𝄞"])
def test_a_sentence_that_is_cut_inside_of_a_letter(letter):
    for length in range(180, 201):
        name = "a" * (length % len(letter.encode()))
        name += letter * ((length - len(name)) // len(letter.encode()))
        with pytest.raises(cuda_link.ChannelNotFoundError, match=name[:10]):
            cuda_link.open_importer(name, timeout=0.001)
