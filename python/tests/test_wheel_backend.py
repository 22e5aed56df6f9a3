# SPDX-License-Identifier: MIT
"""scripts/wheel_backend.py: when the limited API is turned off. wheel/test_wheel.py builds wheels."""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
import types
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture
def backend(monkeypatch):
    """Over a meson-python that only notes what it is told."""
    told = []
    stand_in = types.ModuleType("mesonpy")
    for hook in ("build_sdist", "build_wheel", "build_editable"):
        setattr(stand_in, hook, lambda *arguments, hook=hook: told.append((hook, *arguments)) or "name.whl")
    for what in ("sdist", "wheel", "editable"):
        setattr(stand_in, f"get_requires_for_build_{what}", lambda settings=None: [])
    monkeypatch.setitem(sys.modules, "mesonpy", stand_in)
    spec = importlib.util.spec_from_file_location("wheel_backend", SCRIPTS / "wheel_backend.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.told = told
    return module


OFF = "-Dpython.allow_limited_api=false"


@pytest.mark.parametrize("gil_disabled", [0, 1, None])
@pytest.mark.parametrize("hook", ["build_wheel", "build_editable"])
def test_free_threaded_pythons_build_without_the_limited_api(backend, monkeypatch, hook, gil_disabled):
    asked = {"Py_GIL_DISABLED": gil_disabled}
    monkeypatch.setattr(sysconfig, "get_config_var", asked.get)
    assert getattr(backend, hook)("folder", None, None) == "name.whl"
    assert backend.told == [(hook, "folder", {"setup-args": [OFF]} if gil_disabled else {}, None)]


def test_who_builds_has_the_last_word(backend):
    for given in ("-Da=b", ["-Da=b"]):
        settings = {"setup-args": given, "compile-args": "-j2"}
        assert backend.settings_for(settings, True) == {"setup-args": [OFF, "-Da=b"], "compile-args": "-j2"}
        assert backend.settings_for(settings, False) == settings


def test_it_has_what_pip_asks_for(backend):
    for name in backend.__all__:
        assert callable(getattr(backend, name))
