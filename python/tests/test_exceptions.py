# SPDX-License-Identifier: MIT
"""Exceptions between Python and C: what is raised is told whole, and nothing that ends meanwhile hides it."""

from __future__ import annotations

import ctypes
import sys

import cuda_link
import numpy as np
import pytest
import tables
from capsules import get_pointer, hand_made
from cuda_link import Array, _abi
from cuda_link._backend import low

core_only = pytest.mark.skipif(
    cuda_link.backend.name != "core", reason="the ctypes back end has no such call"
)


@pytest.mark.parametrize("letter", ["é", "€", "𝄞"])
def test_a_sentence_that_is_cut_inside_of_a_letter(letter):
    for length in range(180, 201):
        name = "a" * (length % len(letter.encode()))
        name += letter * ((length - len(name)) // len(letter.encode()))
        with pytest.raises(cuda_link.ChannelNotFoundError, match=name[:10]):
            cuda_link.open_importer(name, timeout=0.001)


def taken():
    """An array whose deleter is Python's, alone in a list, and the list that it appends to."""
    capsule, deleted = hand_made((4,), None, (ctypes.c_uint8 * 4)())
    return [cuda_link.from_dlpack(capsule)], deleted


def itself(array):
    return array


def capsule(array):
    return array.__dlpack__(max_version=(1, 0))


def legacy_capsule(array):
    return array.__dlpack__()


def memory(array):
    return array._memory()[0]


@pytest.mark.parametrize("made", [itself, capsule, legacy_capsule, memory])
def test_an_exception_is_not_hidden_by_a_deleter(made, monkeypatch):
    """The argument of a call that fails goes while the exception is on its way."""
    unraisable = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    things, deleted = taken()
    things.append(made(things.pop()))
    with pytest.raises(TypeError, match="callable"):
        iter(things.pop(), None)
    if not (cuda_link.backend.name == "pure" and "capsule" in made.__name__):  # swept away later
        assert deleted
    assert not unraisable


class Interrupted:
    """An array whose attributes are asked by code of Python's, as those of a subclass of torch's tensors,
    when somebody interrupts that."""

    requires_grad = property(lambda self: self.interrupt())
    raised: type[BaseException] = KeyboardInterrupt

    def interrupt(self):
        raise self.raised


@core_only
def test_an_interrupt_of_a_send_is_told():
    array = cuda_link.from_dlpack(np.zeros((4, 6), np.uint8))
    with cuda_link.open_exporter("interrupted", shape=(4, 6), kind="host") as exporter:
        sender = low.sender(exporter._id)
        table = tables.table(lambda _: 0, lambda *_: 0)
        sender.learn(Interrupted, table, array, bytes(_abi.Description()))
        with pytest.raises(KeyboardInterrupt):
            sender.send(Interrupted(), None)
        Interrupted.raised = OSError
        assert sender.send(Interrupted(), None) is None  # it is another's to tell


def failing_table(function):
    """Its from_object is that function of CPython's."""
    table = tables.table(lambda _: 0, lambda *_: 0)
    made = _abi.Exchange.from_address(get_pointer(table, tables.NAME))
    made.from_object = ctypes.cast(function, ctypes.c_void_p)
    return table


def test_an_interrupt_of_a_table_is_told():
    table = failing_table(ctypes.pythonapi.PyErr_SetNone)
    with pytest.raises(KeyboardInterrupt):
        low.table_take(table, KeyboardInterrupt, Array)
    assert low.table_take(table, OSError, Array) is None
