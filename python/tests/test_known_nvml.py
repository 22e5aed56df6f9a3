# SPDX-License-Identifier: MIT
"""NVMLObserver, with a libnvidia-ml.so.1 of the tests' own and without one."""

from __future__ import annotations

import json
import os

import cuda_link
import pytest
from conftest import run_python
from cuda_link._known.gone import GONE

FAKE = os.environ.get("CUDALINK_FAKE_NVML")
needs_fake = pytest.mark.skipif(not FAKE, reason="needs the tests' NVML (CUDALINK_FAKE_NVML)")

REFERENCE = {
    "gpu_util_pct",
    "mem_bw_util_pct",
    "mem_used_mb",
    "mem_total_mb",
    "sm_clock_mhz",
    "mem_clock_mhz",
    "pcie_tx_kbps",
    "pcie_rx_kbps",
    "temp_c",
    "power_w",
    "power_limit_w",
    "throttle_reasons",
}


def told(code, **environment):
    folder = environment.pop("folder", "full")
    path = os.path.join(str(FAKE), folder)
    ended = run_python(
        f"import json, cuda_link\n{code}", env={**os.environ, "LD_LIBRARY_PATH": path, **environment}
    )
    assert ended.stderr == "" and ended.returncode == 0
    return json.loads(ended.stdout)


def test_every_name_is_listed():
    """NVML_AVAILABLE too, which is made when it is asked for; what has gone is not there to be asked for."""
    listed = dir(cuda_link)
    assert set(cuda_link.__all__) <= set(listed) and "__version__" in listed
    assert listed == sorted(set(listed)) and not set(GONE) & set(listed)


READ = """
with cuda_link.NVMLObserver(0, enabled=True) as observer:
    assert observer.start() and cuda_link.NVML_AVAILABLE
    first = observer.snapshot()
assert observer.snapshot() == {"nvml_available": False}
observer.stop()
print(json.dumps(first))
"""


@needs_fake
def test_a_snapshot():
    found = told(READ)
    assert found.pop("nvml_available") is True and set(found) == REFERENCE
    assert (found["gpu_util_pct"], found["mem_bw_util_pct"], found["temp_c"]) == (71, 12, 41)
    assert (found["power_w"], found["power_limit_w"]) == (123.456, 700)
    assert (found["sm_clock_mhz"], found["mem_clock_mhz"]) == (1980, 3201)
    assert (found["pcie_tx_kbps"], found["pcie_rx_kbps"]) == (1111, 2222)
    assert (found["mem_used_mb"], found["mem_total_mb"]) == (5e10 / 2**20, 15e10 / 2**20)
    assert found["throttle_reasons"] == ["sw_power_cap", "sw_thermal_slowdown"]


@needs_fake
def test_what_a_gpu_does_not_know_is_none():
    found = told(READ, FAKENVML_FAIL="nvmlDeviceGetPowerUsage,nvmlDeviceGetUtilizationRates")
    assert found["power_w"] is None and found["gpu_util_pct"] is None and found["temp_c"] is not None


@needs_fake
def test_a_start_that_fails_is_no_error():
    code = """
observer = cuda_link.NVMLObserver(enabled=True)
print(json.dumps([observer.start(), observer.snapshot()]))
"""
    assert told(code, FAKENVML_FAIL="nvmlInit_v2") == [False, {"nvml_available": False}]
    assert told(code, folder="broken") == [False, {"nvml_available": False}]


@needs_fake
@pytest.mark.parametrize("switch", ["0", "1"])
def test_the_environment_adds_it_to_statistics(switch):
    code = """
spec = cuda_link.FrameSpec("test_known_nvml", height=4, width=4)
with cuda_link.Exporter.open(spec) as exporter:
    with cuda_link.Importer.open(cuda_link.ImportSpec("test_known_nvml")) as importer:
        print(json.dumps([stats.get("nvml") for stats in (exporter.get_stats(), importer.get_stats())]))
"""
    found = told(code, CUDALINK_NVML=switch)
    if switch == "1":
        assert [part["nvml_available"] for part in found] == [True, True]
    else:
        assert found == [None, None]


def test_one_that_was_not_asked_for_says_nothing(monkeypatch):
    monkeypatch.delenv("CUDALINK_NVML", raising=False)
    with cuda_link.NVMLObserver() as observer:
        assert not observer.enabled and observer.snapshot() == {"nvml_available": False}
    monkeypatch.setenv("CUDALINK_NVML", "1")
    assert cuda_link.NVMLObserver().enabled


def test_an_observer_of_the_scripts_own():
    class Observer:
        def snapshot(self):
            return {"gpu_util_pct": 5}

    spec = cuda_link.FrameSpec(f"test_known_nvml_{os.getpid()}", height=4, width=4)
    with cuda_link.Exporter.open(spec) as exporter:
        with cuda_link.Importer.open(cuda_link.ImportSpec(spec.shm_name)) as importer:
            for end in (exporter, importer):
                end.attach_nvml_observer(Observer())
                assert end.get_stats()["nvml"] == {"gpu_util_pct": 5}
