# SPDX-License-Identifier: MIT
"""What may be named as a stream."""

from __future__ import annotations

import pytest
from cuda_link import _abi, _streams


class Torch:
    def __init__(self, handle):
        self.cuda_stream = handle


class CuPy:
    def __init__(self, handle):
        self.ptr = handle


class Cuda:
    def __init__(self, handle):
        self.handle = handle

    def __cuda_stream__(self):
        return (0, self.handle)


def test_numbers():
    assert _streams.resolve(-1) == (_abi.STREAM_COMPLETE, 0)
    assert _streams.resolve(0) == _streams.resolve(1) == (_abi.STREAM_LEGACY, 0)
    assert _streams.resolve(2) == (_abi.STREAM_PER_THREAD, 0)
    assert _streams.resolve(0x7F00) == (_abi.STREAM_HANDLE, 0x7F00)


@pytest.mark.parametrize("kind", [Torch, CuPy, Cuda])
def test_objects(kind):
    assert _streams.resolve(kind(0)) == (_abi.STREAM_LEGACY, 0)
    assert _streams.resolve(kind(99)) == (_abi.STREAM_HANDLE, 99)


def test_what_is_none():
    for bad in (True, "1", 1.0, object(), None):
        with pytest.raises(TypeError):
            _streams.resolve(bad)
    for bad in (-2, 2**64):
        with pytest.raises(ValueError):
            _streams.resolve(bad)
    assert _streams.resolve_event(5) == (_abi.STREAM_EVENT, 5)
    with pytest.raises(ValueError):
        _streams.resolve_event(0)
