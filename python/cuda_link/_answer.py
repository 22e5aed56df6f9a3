# SPDX-License-Identifier: MIT
"""A truth value that may also be called."""

from __future__ import annotations


class Answer(int):
    """True or False, for what some libraries have as an attribute (NumPy's flags) and others as a method
    (files): `frame.writable` and `frame.writable()` say the same. To be tested or compared with ==; it is not
    the object True itself."""

    __slots__ = ()

    def __call__(self) -> bool:
        return bool(self)

    def __repr__(self) -> str:
        return repr(bool(self))


YES, NO = Answer(True), Answer(False)
