#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What the Python package costs, each row in turns with its floor, as `cudalink bench` measures the library.

    PYTHONPATH=build/python python3 bench/python_bench.py [--kind host|vmm] [--quick] [--json] [--check]
                                                          [--row NAME] [--list] [--limit SECONDS]

p50 is judged. Rows of one process are timed call by call, less what reading the clock takes; those of two processes
run the scripts in bench/peers. CUDALINK_PYTHON_BACKEND chooses the back end. A row that needs what is not
installed is left out, and says so; one that fails says why, and the others go on. Kind vmm: python_gpu_rows.py.
"""
import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import sys
import tempfile
import threading
import time
from pathlib import Path

import cuda_link
import numpy as np
import python_gpu_rows
from python_timing import PICTURE, LeftOut, Nothing, clock, clock_cost, need, peer, timed, within

TURNS = 5


class Stage:
    """Both ends of a channel in this process, and a frame that is held."""

    def __init__(self, shape=(16, 16, 4)):
        self.name = f"bench-{os.getpid()}-{id(self)}"
        self.picture = np.full(shape, 17, np.uint8)
        self.exporter = cuda_link.open_exporter(self.name, shape=shape, kind="host")
        self.importer = cuda_link.open_importer(self.name, timeout=10, hold=4)
        self.exporter.send(self.picture)
        self.frame = self.importer.acquire(10)

    def close(self):
        self.importer.close()
        self.exporter.close()


# ---- rows of one process: each returns (samples of the row, samples of its floor) ----------------------------


def acquire(stage, rounds):
    samples, cost, nothing = [], clock_cost(), Nothing()
    for _ in range(rounds):
        stage.exporter.send(stage.picture)
        start = clock()
        frame = stage.importer.acquire()
        end = clock()
        frame.release()
        samples.append(max(end - start - cost, 0) / 1e3)
    return samples, timed(nothing.method, rounds)


def dlpack(stage, rounds):
    frame, array = stage.frame, np.zeros(16, np.uint8)
    row = timed(lambda: frame.__dlpack__(stream=None, max_version=(1, 0)), rounds)
    return row, timed(lambda: array.__dlpack__(), rounds)


def numpy_array(stage, rounds):
    frame = stage.frame
    memory, shape = bytearray(stage.picture.nbytes), stage.picture.shape
    return timed(frame.numpy, rounds), timed(lambda: np.ndarray(shape, np.uint8, memory), rounds)


def torch_floor(rounds):
    torch, array = need("torch"), np.zeros(16, np.uint8)
    return timed(lambda: torch.from_dlpack(array), rounds)


def torch_tensor(stage, rounds):
    floor = torch_floor(rounds)
    return timed(stage.frame.torch, rounds), floor


def torch_from_dlpack(stage, rounds):
    torch, frame = need("torch"), stage.frame
    return timed(lambda: torch.from_dlpack(frame), rounds), torch_floor(rounds)


def in_place(stage, rounds):
    nothing = Nothing()

    def lend():
        with stage.exporter.frame():
            pass

    def block():
        with nothing:
            pass

    return timed(lend, rounds), timed(block, rounds)


def send_small(stage, rounds):
    target = np.empty_like(stage.picture)
    return (
        timed(lambda: stage.exporter.send(stage.picture), rounds),
        timed(lambda: np.copyto(target, stage.picture), rounds),
    )


def send_picture(stage, rounds):
    target = np.empty_like(stage.picture)
    np.copyto(target, stage.picture)
    return (
        timed(lambda: stage.exporter.send(stage.picture), rounds),
        timed(lambda: np.copyto(target, stage.picture), rounds),
    )


def get_frame_numpy(stage, rounds):
    """In turns with a raw copy of such a frame, from its slot to one of two arrays: the row has two as well, since
    its caller still has the array before. One picture copied to one array again and again stays in the cache."""
    targets = [np.full_like(stage.picture, 1) for _ in range(2)]
    samples, floors, cost = [], [], clock_cost()
    with cuda_link.Importer.open(cuda_link.ImportSpec(stage.name)) as importer:
        for i in range(rounds):
            stage.exporter.send(stage.picture)
            start = clock()
            result = importer.get_frame_numpy()
            end = clock()
            if result.outcome is cuda_link.ImportOutcome.NEW_FRAME:
                samples.append(max(end - start - cost, 0) / 1e3)
            stage.exporter.send(stage.picture)
            with stage.importer.acquire() as frame:
                pixels = frame.numpy()
                start = clock()
                np.copyto(targets[i % 2], pixels)
                floors.append(max(clock() - start - cost, 0) / 1e3)
                del pixels
    return samples, floors


def get_frame(stage, rounds):
    raise LeftOut("on kind host it is a copy of the pixels, because the kernel protects them")


# ---- rows of two processes ---------------------------------------------------------------------------


def pair_of(what, script, module=None):
    def measure(stage, rounds):
        if module:
            need(module)
        return peer(script, what, min(rounds, 200)), None

    return measure


SMALL, LARGE = (16, 16, 4), PICTURE


ROWS = [
    # name, measure, shape of the frames, rounds, unit, target by floor, floor's name, what
    ("acquire", acquire, SMALL, 5000, "us", within(1.0), "an empty method", "acquire of a frame that is there"),
    ("dlpack", dlpack, SMALL, 5000, "us", within(0.4), "NumPy's", "frame.__dlpack__(max_version=(1, 0))"),
    ("numpy", numpy_array, SMALL, 5000, "us", None, "numpy.ndarray of a buffer", "frame.numpy()"),
    ("torch", torch_tensor, SMALL, 5000, "us", within(2.0), "torch.from_dlpack of a NumPy array", "frame.torch()"),
    (
        "torch_from_dlpack",
        torch_from_dlpack,
        SMALL,
        5000,
        "us",
        lambda floor: floor + 0.5,
        "torch.from_dlpack of a NumPy array",
        "torch.from_dlpack(frame)",
    ),
    ("in_place", in_place, SMALL, 5000, "us", within(3.0), "an empty with-block", "with exporter.frame(): begin and publish"),
    ("send_small", send_small, SMALL, 5000, "us", None, "numpy.copyto", "exporter.send of 1 KiB"),
    ("send_picture", send_picture, LARGE, 200, "us", None, "numpy.copyto", "exporter.send of 1920x1080 RGBA8"),
    (
        "get_frame_numpy",
        get_frame_numpy,
        LARGE,
        200,
        "us",
        lambda floor: floor / 0.97,
        "numpy.copyto out of the slot",
        "Importer.get_frame_numpy() of 1920x1080 RGBA8",
    ),
    ("get_frame", get_frame, SMALL, 1, "us", within(3.0), "", "Importer.get_frame()"),
    ("picture", pair_of("latency", "cuda_link_channel.py"), SMALL, 100, "us", None, "", "a picture until another process can read it"),
    ("picture_memory", pair_of("latency", "shared_memory_queue.py"), SMALL, 100, "us", None, "", "the same: multiprocessing.shared_memory"),
    ("picture_torch", pair_of("latency", "torch_queue.py", "torch"), SMALL, 100, "us", None, "", "the same: torch.multiprocessing"),
    ("rate", pair_of("rate", "cuda_link_channel.py"), SMALL, 200, "fps", None, "", "such pictures per second, every one received"),
    ("rate_memory", pair_of("rate", "shared_memory_queue.py"), SMALL, 200, "fps", None, "", "the same: multiprocessing.shared_memory"),
    ("rate_torch", pair_of("rate", "torch_queue.py", "torch"), SMALL, 200, "fps", None, "", "the same: torch.multiprocessing"),
]


KINDS = {"host": (Stage, ROWS), "vmm": (python_gpu_rows.Stage, python_gpu_rows.ROWS)}


# ---- results ----------------------------------------------------------------------------------------------


def rank(samples, part):
    return sorted(samples)[min(len(samples) - 1, int(len(samples) * part))]


def samples_of(row, make_stage, quick):
    """All turns of a row, and of its floor."""
    _, function, shape, rounds, *_ = row
    alone = function.__name__ == "measure"
    rows, floors = [], []
    with contextlib.closing(make_stage(shape)) as stage:
        for turn in range(1 if alone else TURNS):
            samples, floor = function(stage, max(rounds // 50, 5) if quick else rounds)
            if turn or alone:  # the first turn warms up
                rows += samples
                floors += floor or []
    return rows, floors


def described(row):
    name, _, _, _, unit, _, floor_name, what = row
    return {"name": name, "what": what, "unit": unit, "floor": None, "floor_name": floor_name, "target": None}


def measure(row, make_stage, quick):
    result, target = described(row), row[5]
    try:
        rows, floors = samples_of(row, make_stage, quick)
    except LeftOut as reason:
        return {**result, "left_out": str(reason)}
    except Exception as error:  # of this row; the others go on
        return {**result, "failed": f"{type(error).__name__}: {error}"}
    result.update(p50=rank(rows, 0.5), p90=rank(rows, 0.9), p99=rank(rows, 0.99), min=min(rows), ok=None)
    if floors:
        result["floor"] = rank(floors, 0.5)
    if target and floors:
        result["target"] = target(result["floor"])
        result["ok"] = result["p50"] <= result["target"]
    return result


def machine():
    cpu = ""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line.partition(": ")[2] for line in lines if line.startswith("model name")), "")
    return {"cpu": cpu, "kernel": platform.release(), "cores": os.cpu_count()}


def versions():
    found = {"python": platform.python_version(), "numpy": np.__version__, "cuda_link": cuda_link.__version__}
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        found["torch"] = importlib.metadata.version("torch")
    return found


def print_row(result):
    def number(value):
        return "-" if value is None else f"{value:.3g}" if value < 1000 else f"{value:.0f}"

    for key, text in (("left_out", "left out"), ("failed", "FAILED")):
        if key in result:
            print(f"{result['name']:<18} {text}: {result[key]}", flush=True)
            return
    verdict = {None: "", True: "ok", False: "MISSED"}[result["ok"]]
    numbers = "".join(f"{number(result[key]):>10}" for key in ("p50", "p90", "p99", "min", "floor", "target"))
    floor = f"; floor: {result['floor_name']}" if result["floor"] is not None else ""
    print(f"{result['name']:<18}{numbers} {result['unit']:<4} {verdict:<7}{result['what']}{floor}", flush=True)


class Report:
    """What is printed: a table that grows, or one JSON object at the end."""

    def __init__(self, options, rows):
        self.options, self.rows, self.results = options, rows, []
        self.head = {
            "machine": machine(),
            "load": os.getloadavg()[0],
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "version": versions(),
            "backend": cuda_link.backend.name,
            "kind": options.kind,
            "quick": options.quick,
        }
        if not options.json:
            print_head(self.head)

    def add(self, result):
        self.results.append(result)
        if not self.options.json:
            print_row(result)

    def end(self):
        if self.options.json:
            print(json.dumps({**self.head, "results": self.results}), flush=True)
        bad = any(result.get("ok") is False or "failed" in result for result in self.results)
        return 1 if self.options.check and bad else 0

    def over(self):
        """In a thread of its own: the row that runs has hung, and what was measured must not go with it."""
        if len(self.results) < len(self.rows):
            late = self.rows[len(self.results)]
            self.add({**described(late), "failed": f"had not ended when {self.options.limit:g} s were over"})
        self.end()
        os._exit(1)


def print_head(head):
    print(f"{head['machine']['cpu']}, {head['machine']['cores']} cores, Linux {head['machine']['kernel']}")
    print(f"{head['date']}, load {head['load']:.3g}, frames of kind {head['kind']}, back end {head['backend']}")
    print(", ".join(f"{name} {version}" for name, version in head["version"].items()) + "\n")
    columns = "".join(f"{key:>10}" for key in ("p50", "p90", "p99", "min", "floor", "target"))
    print(f"{'row':<18}{columns} unit")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=KINDS, default="host", help="where the frames are (host)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, to see that it works")
    parser.add_argument("--json", action="store_true", help="print results as JSON")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed or a row failed")
    parser.add_argument("--row", action="append", default=[], help="only this row; may be repeated")
    parser.add_argument("--list", action="store_true", help="name the rows, measure nothing")
    parser.add_argument("--limit", type=float, help="seconds, after which it ends with what it has")
    return parser.parse_args()


def main():
    options = arguments()
    make_stage, rows = KINDS[options.kind]
    names = [row[0] for row in rows]
    if options.list:
        print("\n".join(names))
        return 0
    unknown = [name for name in options.row if name not in names]
    if unknown:
        print(f"no row {unknown[0]!r}; --list names them", file=sys.stderr)
        return 2
    wanted = [row for row in rows if not options.row or row[0] in options.row]
    report = Report(options, wanted)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("CUDALINK_RUNTIME_DIR", folder)
        if options.limit:
            timer = threading.Timer(options.limit, report.over)
            timer.daemon = True
            timer.start()
        for row in wanted:
            report.add(measure(row, make_stage, options.quick))
        if options.limit:
            timer.cancel()
    return report.end()


if __name__ == "__main__":
    sys.exit(main())
