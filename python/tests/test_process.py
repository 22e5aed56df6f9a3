# SPDX-License-Identifier: MIT
"""Several processes: death, restart, fork, exit with frames alive."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import cuda_link
import pytest
from conftest import LIMIT, run_forks, run_python, start_python
from cuda_link import _abi, _channels
from test_other_pythons import found

PRODUCER = """
import sys, cuda_link
exporter = cuda_link.open_exporter("process", shape=(64, 64), kind="host")
print("ready", flush=True)
for line in sys.stdin:
    exporter.send(bytes([int(line)]) * 4096)
    print("sent", flush=True)
"""


@pytest.fixture
def producer():
    started = start_python(PRODUCER)
    assert started.stdout.readline() == "ready\n"
    yield started
    started.kill()
    started.communicate()


def send(producer, number):
    producer.stdin.write(f"{number}\n")
    producer.stdin.flush()
    assert producer.stdout.readline() == "sent\n"


def test_from_another_process(producer):
    with cuda_link.open_importer("process", timeout=LIMIT) as importer:
        for number in (3, 4, 5):
            send(producer, number)
            with importer.acquire(LIMIT) as frame:
                assert frame.packed() == bytes([number]) * 4096


def test_a_killed_producer(producer):
    with cuda_link.open_importer("process", timeout=LIMIT) as importer:
        send(producer, 9)
        frame = importer.acquire(LIMIT)
        producer.kill()
        producer.wait()
        with pytest.raises(cuda_link.PeerLostError):
            importer.acquire(LIMIT)
        assert frame.packed() == bytes([9]) * 4096  # what is held stays
        successor = start_python(PRODUCER)
        assert successor.stdout.readline() == "ready\n"
        try:
            send(successor, 10)
            assert importer.acquire(LIMIT).session == 2
        finally:
            successor.kill()
            successor.communicate()


def test_once_ends_with_the_producer():
    with cuda_link.open_exporter("once", shape=(4,), kind="host") as exporter:
        importer = cuda_link.open_importer("once", once=True, policy="every", timeout=10)
        exporter.wait_consumers(1, LIMIT)
        for _ in range(3):
            assert exporter.send(bytes(4), timeout=LIMIT)
    assert [frame.sequence for frame in importer] == [1, 2, 3]
    importer.close()


def test_the_name_is_taken():
    with cuda_link.open_exporter("taken", shape=(4,), kind="host"):
        with pytest.raises(cuda_link.NameInUseError, match="taken"):
            cuda_link.open_exporter("taken", shape=(4,), kind="host")


EXIT = """
import sys, cuda_link
exporter = cuda_link.open_exporter("exit%s" % sys.argv[1], shape=(64, 64), kind="host")
importer = cuda_link.open_importer("exit%s" % sys.argv[1], timeout=10, hold=3)
exporter.send(bytes(4096))
frame = importer.acquire(10)
view = frame.buffer()
capsule = frame.__dlpack__()
exporter.send(bytes(4096))
other = importer.acquire(10)
cycle = [other]
cycle.append(cycle)
try:
    import numpy
    array, tensor = frame.numpy(), numpy.from_dlpack(other)
except ImportError:
    pass
copy = frame.copy()
copied = copy.__dlpack__()
lent = exporter.frame()
lent.__enter__()
import threading
threading.Thread(target=importer.acquire, daemon=True).start() if sys.argv[2] == "thread" else None
"""


WAYS = ("plain", "thread")


def test_exit_with_frames_alive():
    for round in range(6):
        how = WAYS[round % 2]
        ended = run_python(EXIT, str(round), how)
        assert (ended.returncode, ended.stderr) == (0, ""), f"round {round}, {how}"


@pytest.mark.slow
def test_200_exits_with_frames_alive():
    assert run_forks(EXIT, 200, "cuda_link numpy", *WAYS) == ["0 ''"] * 200


FORK = """
import os, sys, cuda_link
exporter = cuda_link.open_exporter("fork", shape=(4,), kind="host", user_size=4)
importer = cuda_link.open_importer("fork", timeout=10, policy="in_order")
exporter.send(b"abcd", user=b"user")
exporter.send(b"efgh")
frame, other = importer.acquire(10), importer.acquire(10)
tensor, array = frame.tensor(), frame.numpy()
slot = exporter.frame()
slot.__enter__()
refusing = {
    "acquire": importer.acquire, "send": lambda: exporter.send(b"abcd"), "statistics": importer.statistics,
    "open": lambda: cuda_link.open_importer("fork"), "numpy": frame.numpy, "copy": frame.copy,
    "packed": frame.packed, "buffer": frame.buffer, "arrays": frame.arrays, "user": lambda: frame.user,
    "array": lambda: frame.__array__(), "lost": lambda: frame.lost, "dlpack": lambda: frame.__dlpack__(),
    "versioned": lambda: frame.__dlpack__(max_version=(1, 0)), "copied": lambda: frame.__dlpack__(copy=True),
    "tensor": lambda: tensor.__dlpack__(), "from_dlpack": lambda: cuda_link.from_dlpack(frame),
    "release": frame.release, "release behind": lambda: other.release(stream=-1),
    "slot": slot.numpy, "slot tensor": lambda: slot.tensor().__dlpack__(),
}
child = os.fork()
if child == 0:
    wrong = []
    for what, call in refusing.items():
        try:
            wrong.append(f"{what}: {call()!r}")
        except cuda_link.ForkedError as error:
            wrong += [] if "fork" in str(error) else [f"{what}: {error}"]
        except Exception as error:
            wrong.append(f"{what}: {error!r}")
    if bytes(array) != b"abcd" or (frame.sequence, other.sequence) != (1, 2):
        wrong.append("what was looked at before can't be read any more")
    refusing.clear()
    del frame, other, tensor, array, slot, importer, exporter
    sys.exit("; ".join(wrong) or 0)
_, status = os.waitpid(child, 0)
assert status == 0
slot.abandon()
assert frame.packed() == b"abcd"
frame.release()
other.release()
del array
exporter.send(b"ijkl")
assert importer.acquire(10).packed() == b"ijkl"
"""


def test_fork():
    ended = run_python(FORK)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_channels():
    with cuda_link.open_exporter("seen", shape=(4, 4), dtype="float32", kind="host") as exporter:
        with cuda_link.open_importer("seen", hold=2, policy="in_order", timeout=10) as importer:
            exporter.send(bytes(4))
            frame = importer.acquire(10)
            (channel,) = cuda_link.channels()
            assert (channel.name, channel.status, channel.pid) == ("seen", "open", os.getpid())
            assert channel.kind == "host" and channel.published == 1
            assert (channel.device, channel.device_name) == ("", "")
            (consumer,) = channel.consumers
            assert (consumer.policy, consumer.hold, consumer.held) == ("in_order", 2, 1)
            assert (consumer.received, consumer.missed, consumer.measured) == (1, 0, 1)
            assert consumer.latency is not None and consumer.latency > 0
            assert consumer.latencies is not None and len(consumer.latencies) == 96
            assert sum(consumer.latencies) == 1
            assert importer.statistics().slots == channel.slots == exporter.statistics().slots
            assert exporter.statistics().gpu_waits == 0
            frame.release()
    assert cuda_link.channels() == []


def test_what_a_consumer_does_not_count_is_none():
    info = _abi.ConsumerInfo(received=2**64 - 1, missed=2**64 - 1, latency=2**64 - 1, measured=2**64 - 1)
    info.latencies[:] = [2**64 - 1] * 96
    consumer = _channels._consumer(info)
    assert (consumer.received, consumer.missed, consumer.latency, consumer.measured) == (None,) * 4
    assert consumer.latencies is None
    assert consumer.position == 0


def test_leftovers_are_removed(producer):
    producer.kill()
    producer.wait()
    assert [channel.status for channel in cuda_link.channels()] == ["lost"]
    assert cuda_link.clean() == 1
    assert cuda_link.channels() == []


def test_names_are_checked():
    for bad, error in (("", ValueError), ("x" * 201, ValueError), ("a\0b", ValueError), (5, TypeError)):
        with pytest.raises(error):
            cuda_link.open_exporter(bad, shape=(4,), kind="host")
    with pytest.raises(ValueError, match="kind"):
        cuda_link.open_exporter("x", shape=(4,), kind="gpu")
    for bad in ({}, {"dtype": "uint8"}, {"format": "RGBA8"}, {"format": "PAL", "shape": (2, 2)}):
        with pytest.raises((TypeError, ValueError)):
            cuda_link.open_exporter("x", kind="host", **bad)
    with pytest.raises(ValueError, match="float128"):
        cuda_link.open_exporter("x", shape=(4,), dtype="float128", kind="host")


NAMED = "CUDALINK_PYTHON_BACKEND"


def test_the_back_end_can_be_chosen():
    ended = run_python("import cuda_link; print(cuda_link.backend.name)")
    assert ended.stdout.strip() == cuda_link.backend.name
    environment = dict(os.environ, CUDALINK_PYTHON_BACKEND="fastest")
    code = [sys.executable, "-c", "import cuda_link"]
    asked = run_python(
        "import cuda_link; print(cuda_link.backend.reason)", env={**os.environ, NAMED: ended.stdout.strip()}
    )
    assert asked.stdout == f"{NAMED} asks for it\n"
    refused = subprocess.run(code, env=environment, capture_output=True, text=True, timeout=LIMIT)
    assert refused.returncode == 1 and "core, pure" in refused.stderr


def test_importing_imports_no_framework():
    code = "import sys, cuda_link; print([m for m in ('numpy', 'torch', 'cupy', 'jax') if m in sys.modules])"
    assert run_python(code).stdout == "[]\n"


SUBINTERPRETER = '''
import _xxsubinterpreters as interpreters
code = """
import cuda_link
with cuda_link.open_exporter("inside", shape=(4,), kind="host") as exporter:
    importer = cuda_link.open_importer("inside", timeout=10)
    exporter.send(b"abcd")
    frame = importer.acquire(10)
    assert bytes(cuda_link.from_dlpack(frame).buffer()) == b"abcd"
    try:
        importer.acquire(0)
    except cuda_link.TimedOutError:
        frame.release()
"""
for _ in range(5):
    one = interpreters.create()
    interpreters.run_string(one, code)
    interpreters.destroy(one)
exec(code)
'''


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="later ones give each its own GIL by default")
def test_interpreters_that_share_the_gil():
    ended = run_python(SUBINTERPRETER)
    assert ended.returncode == 0 and "Traceback" not in ended.stderr, ended.stderr  # decimal warns there


OWN_GIL = '''
import sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
one = interpreters.create()
code = """
try:
    import cuda_link
except ImportError as error:
    print("refused:", error, flush=True)
else:
    with cuda_link.open_exporter("inside", shape=(4,), kind="host") as exporter:
        with cuda_link.open_importer("inside", timeout=10) as importer:
            exporter.send(b"abcd")
            with importer.acquire(10) as frame:
                print("works:", cuda_link.backend.name, bytes(frame.packed()), flush=True)
"""
getattr(interpreters, "exec" if hasattr(interpreters, "exec") else "run_string")(one, code)
interpreters.destroy(one)
'''


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_interpreters_with_a_gil_of_their_own(version):
    """Refused in words, or served by ctypes (3.13 lets it in there); whichever, the process goes on."""
    python = found(version)
    if python is None:
        pytest.skip(f"needs Python {version}")
    package = Path(cuda_link.__file__).parent
    if cuda_link.backend.name == "core" and not (package / "_core.abi3.so").exists():
        pytest.skip("the C extension is one Python's own")
    environment = {**os.environ, "PYTHONPATH": str(package.parent), NAMED: cuda_link.backend.name}
    ended = subprocess.run(
        [python, "-B", "-c", OWN_GIL], capture_output=True, text=True, timeout=LIMIT, env=environment
    )
    assert ended.returncode == 0, ended.stderr
    refused = re.fullmatch(r"refused: .*does not support loading in subinterpreters\n", ended.stdout)
    works = ended.stdout == "works: pure b'abcd'\n"
    assert works if version == "3.13" and cuda_link.backend.name == "pure" else refused, ended.stdout


WORKER = """
import sys, cuda_link
importer = cuda_link.open_importer("group", group="workers", hold=1, once=True, timeout=60)
print("ready", flush=True)
for frame in importer:
    print(frame.packed()[0], int(frame.redelivered), flush=True)
    if sys.argv[1] == "hang":
        sys.stdin.read()
"""


def test_a_group_of_processes():
    """Each frame to one worker; what a killed one had goes to another, once."""
    with cuda_link.open_exporter("group", shape=(4,), kind="host", hold_limit=None) as exporter:
        hanging = start_python(WORKER, "hang")
        assert hanging.stdout.readline() == "ready\n"
        assert exporter.send(bytes([100] * 4), timeout=LIMIT)
        assert hanging.stdout.readline() == "100 0\n"
        workers = [start_python(WORKER, "go") for _ in range(2)]
        assert all(worker.stdout.readline() == "ready\n" for worker in workers)
        for number in range(20):
            assert exporter.send(bytes([number] * 4), timeout=LIMIT)
        hanging.kill()
        hanging.communicate()
        exporter.wait_consumers(2, LIMIT)
        exporter.wait_taken(LIMIT)
        while exporter.statistics().consumers > 2 or exporter.statistics().redelivered < 1:
            assert exporter.send(bytes([200] * 4), timeout=LIMIT)
        exporter.wait_taken(LIMIT)
    lines = []
    for worker in workers:
        out, errors = worker.communicate(timeout=LIMIT)
        assert (worker.returncode, errors) == (0, "")
        lines += out.splitlines()
    assert sorted(int(line.split()[0]) for line in lines if line != "200 0") == [*range(20), 100]
    assert "100 1" in lines


def test_a_producer_without_descriptors_lets_consumers_in_later():
    started = start_python(
        """
import resource, sys, cuda_link
exporter = cuda_link.open_exporter("full", shape=(64,), kind="host")
exporter.send(bytes(64))
before = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
print("full", flush=True)
sys.stdin.readline()
resource.setrlimit(resource.RLIMIT_NOFILE, before)
sys.stdin.readline()
"""
    )
    try:
        assert started.stdout.readline() == "full\n"
        with pytest.raises((cuda_link.ChannelNotFoundError, cuda_link.TimedOutError)):
            cuda_link.open_importer("full", timeout=0.3)
        started.stdin.write("\n")
        started.stdin.flush()
        with cuda_link.open_importer("full", timeout=LIMIT) as importer:
            importer.acquire(LIMIT).release()
    finally:
        started.kill()
        started.communicate()


@pytest.mark.parametrize("most", range(6, 16))
def test_a_process_with_few_descriptors_is_told(most):
    """It once waited for ever, and its service thread with it."""
    ended = run_python(
        """
import resource, sys, cuda_link
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), hard))
try:
    cuda_link.open_exporter("few", shape=(64,), kind="host").close()
except (cuda_link.SystemRefusedError, cuda_link.RefusedError) as error:
    assert "open files" in str(error) or "ulimit -n" in str(error), error
""",
        str(most),
    )
    assert ended.returncode == 0, ended.stderr
