# SPDX-License-Identifier: MIT
"""NVMLObserver: what a GPU says about itself. By the library, which loads NVML (cudalink/telemetry.h)."""

from __future__ import annotations

import ctypes
from typing import Any

from .. import _abi
from .._errors import ClosedError, CudaLinkError, error_for
from . import environment

_NOT_THERE = {"nvml_available": False}
_LOAD, _MEMORY, _SM_CLOCK, _MEMORY_CLOCK, _SENT, _RECEIVED, _HEAT, _POWER, _LIMIT, _THROTTLE = (
    1 << bit for bit in range(10)
)
_THROTTLES = 9  # reasons, one per bit


def _library() -> ctypes.CDLL:
    from .._library import library

    if not library.cudalink_telemetry_read.argtypes:
        library.cudalink_telemetry_read.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
        library.cudalink_throttle_name.argtypes = [ctypes.c_uint64]
        library.cudalink_throttle_name.restype = ctypes.c_char_p
    return library


def _check(status: int) -> None:
    if status < 0:
        raise error_for(status, _library().cudalink_last_error().decode(errors="replace"))


def _uuid(device: int) -> bytes | None:
    """Of a GPU as this process counts; None when CUDA does not say."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        handle, uuid = ctypes.c_int(), ctypes.create_string_buffer(16)
        failed = (
            driver.cuInit(0)
            or driver.cuDeviceGet(ctypes.byref(handle), device)
            or driver.cuDeviceGetUuid_v2(uuid, handle)
        )
    except (OSError, AttributeError):
        return None
    return None if failed else uuid.raw


def available() -> bool:
    """Can NVML be loaded?"""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


class NVMLObserver:
    """Load, memory, clocks, PCIe, heat and power of one GPU. A context manager: start, snapshot, stop.

    device: as this process counts. enabled: False = every snapshot says that there is nothing; None = as
    CUDALINK_NVML says. A machine without NVML is no error.
    """

    def __init__(self, device: int = 0, enabled: bool | None = None) -> None:
        self.device = device
        """The GPU."""
        self.enabled = environment.switch("NVML", False) if enabled is None else enabled
        """Was it asked for?"""
        self._started = False
        self._device_uuid: bytes | None = None

    def start(self) -> bool:
        """Loads NVML; True when it is there. Started twice counts once."""
        if self.enabled and not self._started:
            self._started = _library().cudalink_telemetry_start() == 0
            if self._started:
                self._device_uuid = _uuid(self.device)
        return self._started

    def stop(self) -> None:
        """Ends it. May be called again."""
        if self._started:
            self._started = False
            _library().cudalink_telemetry_stop()

    def _read(self) -> _abi.Telemetry:
        told = _abi.Telemetry()
        told.size = _abi.size(told)
        _check(_library().cudalink_telemetry_read(self._device_uuid, ctypes.addressof(told)))
        return told

    def snapshot(self) -> dict[str, Any]:
        """What the GPU says now: gpu_util_pct, mem_bw_util_pct, mem_used_mb, mem_total_mb, sm_clock_mhz,
        mem_clock_mhz, pcie_tx_kbps, pcie_rx_kbps, temp_c, power_w, power_limit_w, throttle_reasons (names);
        None for what it does not know. {"nvml_available": False} when there is nothing to ask. Takes some
        40 ms, because PCIe is sampled."""
        if not self._started:
            return dict(_NOT_THERE)
        try:
            told = self._read()
        except ClosedError:
            return dict(_NOT_THERE)
        except CudaLinkError as error:
            return {**_NOT_THERE, "nvml_error": str(error)}
        return {"nvml_available": True, **_values(told)}

    def __enter__(self) -> NVMLObserver:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def __del__(self) -> None:
        if getattr(self, "_started", False):
            try:
                self.stop()
            except Exception:  # the end of the process
                pass


def _values(told: _abi.Telemetry) -> dict[str, Any]:
    def known(field: int, value: Any) -> Any:
        return value if told.known & field else None

    name = _library().cudalink_throttle_name
    bits = [1 << bit for bit in range(_THROTTLES) if told.throttle & 1 << bit]
    return {
        "gpu_util_pct": known(_LOAD, told.gpu_percent),
        "mem_bw_util_pct": known(_LOAD, told.memory_percent),
        "mem_used_mb": known(_MEMORY, told.memory_used / 2**20),
        "mem_total_mb": known(_MEMORY, told.memory_total / 2**20),
        "sm_clock_mhz": known(_SM_CLOCK, told.sm_clock_mhz),
        "mem_clock_mhz": known(_MEMORY_CLOCK, told.memory_clock_mhz),
        "pcie_tx_kbps": known(_SENT, told.pcie_sent_kb),
        "pcie_rx_kbps": known(_RECEIVED, told.pcie_received_kb),
        "temp_c": known(_HEAT, told.temperature),
        "power_w": known(_POWER, told.power_mw / 1000),
        "power_limit_w": known(_LIMIT, told.power_limit_mw / 1000),
        "throttle_reasons": known(_THROTTLE, [name(bit).decode() for bit in bits]),
    }


def checked_observer(observer: Any) -> Any:
    """Itself. Errors: TypeError."""
    if observer is None or callable(getattr(observer, "snapshot", None)):
        return observer
    raise TypeError(f"{observer!r} has no snapshot(): pass an NVMLObserver, or None")


def observer_from_env(device: int) -> NVMLObserver | None:
    """A started one when CUDALINK_NVML=1."""
    observer = NVMLObserver(device)
    observer.start()
    return observer if observer.enabled else None
