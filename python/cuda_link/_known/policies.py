# SPDX-License-Identifier: MIT
"""ExportPolicy and ImportPolicy. Fields that steer what does not exist here are kept, so that scripts run;
their docstrings say so."""

from __future__ import annotations

from dataclasses import dataclass

from . import environment

_PRIORITIES = ("normal", "low", "high")
_WIRES = ("auto", "own", "old")


@dataclass(frozen=True)
class ExportPolicy:
    """How an Exporter behaves."""

    export_sync: bool = False
    """Each export returns when its copy is done."""
    use_graphs: bool = True
    """Without effect: the library uses graphs where they help."""
    flush_probe: bool = True
    """Ask the stream for its state after queuing; of use where a driver collects work (Windows)."""
    strict_device: bool = False
    """Raise ValueError for memory that is not the channel's GPU's. Else it is copied from where it is."""
    require_source_sync: bool = False
    """Raise ValueError, instead of warning once, when no producer stream was named."""
    barrier_enabled: bool = True
    """Hold frames back from the old wire while a TouchDesigner sender starts up."""
    barrier_stale_ns: int = 5_000_000_000
    """A barrier that has been held for longer, in ns, does not count. 0 = 5 s."""
    high_priority_stream: bool = True
    """Without effect: copies run on the stream that was named."""
    export_profile: bool = False
    """Log what an export takes, each 97 frames (level info)."""
    doorbell: bool = False
    """Without effect: consumers can always sleep."""
    wire: str = "auto"
    """New. "auto": programs of cuda-link 1.x get each frame, too, by one more copy on the GPU, where there
    is one. "own": they do not. "old": nobody but they."""

    @classmethod
    def from_env(cls) -> ExportPolicy:
        """From CUDALINK_EXPORT_SYNC, _USE_GRAPHS, _EXPORT_FLUSH_PROBE, _STRICT_DEVICE,
        _REQUIRE_SOURCE_SYNC, _ACTIVATION_BARRIER, _BARRIER_STALE_NS, _LIB_STREAM_PRIO, _EXPORT_PROFILE,
        _DOORBELL, _WIRE."""
        return cls(
            export_sync=environment.switch("EXPORT_SYNC", False),
            use_graphs=environment.switch("USE_GRAPHS", True),
            flush_probe=environment.switch("EXPORT_FLUSH_PROBE", True),
            strict_device=environment.switch("STRICT_DEVICE", False),
            require_source_sync=environment.switch("REQUIRE_SOURCE_SYNC", False),
            barrier_enabled=environment.switch("ACTIVATION_BARRIER", True),
            barrier_stale_ns=environment.number("BARRIER_STALE_NS", 5_000_000_000),
            high_priority_stream=environment.word("LIB_STREAM_PRIO", _PRIORITIES, "high") == "high",
            export_profile=environment.switch("EXPORT_PROFILE", False),
            doorbell=environment.switch("DOORBELL", False),
            wire=environment.word("WIRE", _WIRES, "auto"),
        )

    @classmethod
    def low_latency(cls) -> ExportPolicy:
        """Without the probe."""
        return cls(flush_probe=False)

    @classmethod
    def for_testing(cls) -> ExportPolicy:
        """Everything off."""
        return cls(
            use_graphs=False,
            flush_probe=False,
            barrier_enabled=False,
            barrier_stale_ns=0,
            high_priority_stream=False,
        )


@dataclass(frozen=True)
class ImportPolicy:
    """How an Importer behaves."""

    wait_spin_us: int = 200
    """µs that waits look before they sleep."""
    d2h_num_streams: int = 1
    """Streams that share one large copy to the CPU, 1 to 8."""
    d2h_stream_high_priority: bool = False
    """Without effect."""
    allow_pageable_fallback: bool = False
    """Without effect: any memory will do."""
    d2h_pipelined: bool = False
    """get_frame_numpy runs one frame late: it begins to copy the newest frame and returns the one before,
    copied while the script did something else. Memory of the CPU is copied at once, and returned as late."""
    torch_gpu_wait: bool = False
    """get_frame leaves the wait for pixels to torch's current stream."""
    torch_gpu_wait_adaptive: bool = False
    """The same, from when so many gets had to sleep for their pixels, and then for good."""
    gpu_wait_adaptive_window: int = 120
    """Gets, after which counting begins anew."""
    gpu_wait_adaptive_sleep_pct: int = 5
    """Percent of the window that must have slept."""
    doorbell: bool = False
    """Without effect: waits always sleep on the producer's bell."""
    wait_backend: str = "auto"
    """Without effect: there is one."""
    debug: bool = False
    """Without effect."""
    reconnect_enabled: bool = True
    """Go on with the next producer; else SHUTDOWN is the end."""
    reconnect_max_attempts: int = 20
    """Attempts that are logged. They go on: looking costs nothing here."""
    reconnect_backoff_frames: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 120)
    """Gets from one attempt to find a producer until the next; the last number stays. A producer that
    wait_for_doorbell or is_ready has noticed is taken at once. Empty: each get looks."""
    wire: str = "auto"
    """New. "auto": whatever there is of that name, our own first. "own", "old": nothing but that."""
    hold: int = 3
    """New. Frames that may be held: the one of this get, of the get before, and one that the script
    keeps. 1 to 16."""

    @classmethod
    def from_env(cls) -> ImportPolicy:
        """From CUDALINK_WAIT_SPIN_US, _D2H_STREAMS, _D2H_STREAM_PRIO, _ALLOW_PAGEABLE_FALLBACK,
        _D2H_PIPELINED, _TORCH_GPU_WAIT, _TORCH_GPU_WAIT_ADAPTIVE, _GPU_WAIT_ADAPTIVE_WINDOW,
        _GPU_WAIT_ADAPTIVE_SLEEP_PCT, _DOORBELL, _WAIT_BACKEND, _IMPORT_RECONNECT,
        _IMPORT_RECONNECT_MAX_ATTEMPTS, _WIRE."""
        return cls(
            wait_spin_us=environment.number("WAIT_SPIN_US", 200),
            d2h_num_streams=environment.number("D2H_STREAMS", 1),
            d2h_stream_high_priority=environment.word("D2H_STREAM_PRIO", _PRIORITIES, "normal") == "high",
            allow_pageable_fallback=environment.switch("ALLOW_PAGEABLE_FALLBACK", False),
            d2h_pipelined=environment.switch("D2H_PIPELINED", False),
            torch_gpu_wait=environment.switch("TORCH_GPU_WAIT", False),
            torch_gpu_wait_adaptive=environment.switch("TORCH_GPU_WAIT_ADAPTIVE", False),
            gpu_wait_adaptive_window=environment.number("GPU_WAIT_ADAPTIVE_WINDOW", 120),
            gpu_wait_adaptive_sleep_pct=environment.number("GPU_WAIT_ADAPTIVE_SLEEP_PCT", 5),
            doorbell=environment.switch("DOORBELL", False),
            wait_backend=environment.word("WAIT_BACKEND", ("auto", "python", "native"), "auto"),
            reconnect_enabled=environment.switch("IMPORT_RECONNECT", True),
            reconnect_max_attempts=environment.number("IMPORT_RECONNECT_MAX_ATTEMPTS", 20),
            wire=environment.word("WIRE", _WIRES, "auto"),
        )

    @classmethod
    def low_latency(cls) -> ImportPolicy:
        """Longer looks before sleeping."""
        return cls(wait_spin_us=2000, d2h_num_streams=2, d2h_stream_high_priority=True)

    @classmethod
    def for_testing(cls) -> ImportPolicy:
        """No looks, no reconnecting."""
        return cls(
            wait_spin_us=0, allow_pageable_fallback=True, reconnect_enabled=False, wait_backend="python"
        )
