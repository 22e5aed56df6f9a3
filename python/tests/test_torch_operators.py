# SPDX-License-Identifier: MIT
"""send, receive and linear: as functions with any torch, as operators with torch 2.10 and later."""

from __future__ import annotations

import gc

import cuda_link
import pytest
from conftest import until_held

torch = pytest.importorskip("torch")
ct = pytest.importorskip("cuda_link.torch")

operators = pytest.mark.skipif(not ct.OPERATORS, reason="operators need torch 2.10")


@pytest.fixture
def exporter():
    with cuda_link.open_exporter("graph", shape=(6, 8), kind="host", slots=8, hold_limit=None) as opened:
        yield ct.attach(opened)


@pytest.fixture
def importer(exporter):
    with cuda_link.open_importer("graph", timeout=10, hold=2, policy="in_order") as opened:
        yield ct.attach(opened)


def numbers(add=0.0):
    return torch.arange(48.0).reshape(6, 8) + add


def received(importer):
    """All that is there, as numbers."""
    frames = []
    while True:
        try:
            with importer.acquire(0) as frame:
                frames.append(frame.copy().torch())
        except cuda_link.TimedOutError:
            return frames


# ---- send and receive


def test_send_and_receive(exporter, importer):
    ct.send(numbers(), "graph")
    ct.send(numbers().T, "graph")
    assert torch.equal(ct.receive("graph", (6, 8), torch.float32), numbers())
    second = ct.receive("graph", torch.Size((8, 6)), torch.float32, timeout=10)
    assert torch.equal(second, numbers().T) and second.is_contiguous()
    second.add_(1)  # memory of its own
    until_held(importer, 0)
    assert importer.statistics().copies == 0
    assert exporter.statistics().copies == 2


def test_a_frame_of_another_kind_is_given_back(exporter, importer):
    for shape, dtype in (((6, 7), torch.float32), ((6, 8), torch.float64)):
        ct.send(numbers(), "graph")
        with pytest.raises(ValueError, match=r"frame \d is float32 \(6, 8\), and float") as caught:
            ct.receive("graph", shape, dtype)
        until_held(importer, 0)
        assert caught  # the error keeps nothing


def test_nothing_in_time(exporter, importer):
    with pytest.raises(cuda_link.TimedOutError):
        ct.receive("graph", (6, 8), torch.float32, timeout=0)
    with cuda_link.open_importer("graph", policy="every", timeout=10):
        while exporter.statistics().dropped == 0:  # until that one, which takes nothing, is in the way
            ct.send(numbers(), "graph")
        published = exporter.statistics().published
        ct.send(numbers(), "graph", 0)
        assert exporter.statistics().published == published


def test_channels_are_known_while_they_are_kept(exporter):
    gc.collect()  # the importer of a test before, in a frame that failed on purpose
    with pytest.raises(LookupError, match=r"open_exporter\('nowhere', \.\.\.\)"):
        ct.send(numbers(), "nowhere")
    with pytest.raises(LookupError, match=r"open_importer\('graph', \.\.\.\)"):
        ct.receive("graph", (6, 8), torch.float32)
    with pytest.raises(TypeError, match="str"):
        ct.attach("graph")
    short = ct.attach(cuda_link.open_exporter("short", shape=(4,), kind="host"))
    ct.send(torch.ones(4), "short")
    short.close()
    with pytest.raises(cuda_link.ClosedError):
        ct.send(torch.ones(4), "short")
    del short
    gc.collect()
    with pytest.raises(LookupError):
        ct.send(torch.ones(4), "short")


def test_what_send_refuses(exporter):
    with pytest.raises(BufferError, match="detach"):
        ct.send(numbers().requires_grad_(), "graph")
    with pytest.raises(BufferError, match="to_dense"):
        ct.send(numbers().to_sparse(), "graph")
    assert exporter.statistics().published == 0


# ---- linear


def layer(n=5, k=8):
    generator = torch.Generator().manual_seed(n * 100 + k)
    return torch.randn(n, k, generator=generator), torch.randn(n, generator=generator)


@pytest.mark.parametrize("with_bias", [False, True])
def test_linear(with_bias):
    weight, bias = layer()
    bias = bias if with_bias else None
    wide = numbers().reshape(2, 3, 8) / 48
    for x in (wide, wide.transpose(0, 1), wide[0, 0], wide[:, :0], wide.expand(4, 2, 3, 8), wide.flip(0)):
        result = ct.linear(x, weight, bias)
        torch.testing.assert_close(result, torch.nn.functional.linear(x, weight, bias))
        assert result.is_contiguous() and result.shape == (*x.shape[:-1], 5)
    strided = layer(8, 5)[0].T
    torch.testing.assert_close(
        ct.linear(wide, strided, bias), torch.nn.functional.linear(wide, strided, bias)
    )
    empty = ct.linear(torch.ones(3, 0), torch.ones(2, 0), torch.ones(2) if with_bias else None)
    assert torch.equal(empty, torch.full((3, 2), float(with_bias)))


def test_linear_is_fresh():
    x, weight = torch.eye(4), torch.eye(4)
    first, second = ct.linear(x, weight), ct.linear(x, weight)
    assert len({t.data_ptr() for t in (x, weight, first, second)}) == 4


def test_linear_refuses():
    x, (weight, bias) = numbers(), layer()
    for arguments, error, text in (
        ((x.double(), weight), TypeError, r"x is torch.float64.*x\.float\(\)"),
        ((x, weight.half()), TypeError, r"weight is torch.float16"),
        ((x, weight, bias.int()), TypeError, r"bias is torch.int32"),
        ((x, weight.T), ValueError, r"\(6, 8\) and \(8, 5\)"),
        ((x[0, 0], weight), ValueError, r"not \(\)"),
        ((x, weight[0]), ValueError, r"weight \(n, k\)"),
        ((x, weight, bias[1:]), ValueError, r"\(5,\); not \(4,\)"),
        ((x, weight.to("meta")), ValueError, "meta"),
    ):
        with pytest.raises(error, match=text):
            ct.linear(*arguments)


def test_linear_has_no_gradient():
    x, (weight, bias) = numbers(), layer()
    expected = ct.linear(x, weight, bias)
    for given in (0, 1, 2):
        tensors = [t.clone().requires_grad_(i == given) for i, t in enumerate((x, weight, bias))]
        with pytest.raises(RuntimeError, match=r"tensor\.detach\(\).*torch\.no_grad\(\)"):
            ct.linear(*tensors)
        with torch.no_grad():
            assert torch.equal(ct.linear(*tensors), expected)
        assert torch.equal(ct.linear(*(t.detach() for t in tensors)), expected)
    with torch.inference_mode():
        assert torch.equal(ct.linear(x, weight, bias), expected)


# ---- operators


def test_there_are_operators_since_torch_2_10():
    assert hasattr(torch.ops.cuda_link, "linear") == ct.OPERATORS
    assert ct.OPERATORS == (tuple(int(n) for n in torch.__version__.split(".")[:2]) >= (2, 10))


@operators
def test_opcheck(exporter, importer):
    weight, bias = layer()
    for arguments in (
        (numbers(), weight, bias),
        (numbers().reshape(2, 3, 8), weight),
        (numbers()[:, :5], weight[:, :5]),
    ):
        torch.library.opcheck(torch.ops.cuda_link.linear.default, arguments)
    for tensor in (numbers(), numbers().T, numbers()[0, 0]):
        torch.library.opcheck(torch.ops.cuda_link.send.default, (tensor, "graph"))
    received(importer)
    for _ in range(8):
        exporter.send(numbers())
    arguments = ("graph", [6, 8], torch.float32, torch.device("cpu"))
    torch.library.opcheck(torch.ops.cuda_link.receive.default, arguments)
    assert len(received(importer)) < 8


def step(x):
    """Sends and a receive whose results nobody uses, receives that look alike, an order that matters."""
    ct.send(x + 1, "graph")
    ct.send(x + 2, "graph")
    first = ct.receive("graph", (6, 8), torch.float32, timeout=10)
    ct.receive("graph", (6, 8), torch.float32, timeout=10)
    ct.send(x * 2, "graph")
    second = ct.receive("graph", (6, 8), torch.float32, timeout=10)
    ct.send(x.T.contiguous(), "graph")
    second.add_(100)
    return ct.linear(first + second, torch.ones(3, 8))


@operators
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.filterwarnings("ignore")  # of the compiler
def test_compiled(exporter, importer, backend):
    compiled = torch.compile(step, fullgraph=True, backend=backend)
    for n in range(3):
        x = numbers(n)
        expected = ((x + 1) + (x * 2 + 100)).sum(1, keepdim=True).expand(6, 3)
        torch.testing.assert_close(compiled(x), expected)
        left = received(importer)
        assert len(left) == 1 and torch.equal(left[0], x.T)
    assert exporter.statistics().published == 12


@operators
@pytest.mark.filterwarnings("ignore")
def test_compiled_for_any_size(exporter, importer):
    seen = []

    def backend(graph, inputs):
        seen.append(graph)
        return graph

    @torch.compile(fullgraph=True, dynamic=True, backend=backend)
    def relay(x, weight):
        ct.send(x, "graph")
        return ct.linear(ct.receive("graph", x.shape, torch.float32, timeout=10), weight)

    for rows in (3, 4, 7):
        x, weight = torch.ones(rows, 8), torch.ones(2, 8)
        assert torch.equal(relay(x, weight), torch.full((rows, 2), 8.0))
    assert len(seen) == 1
    assert received(importer) == []


@operators
@pytest.mark.filterwarnings("ignore")
def test_compiled_refusals(exporter):
    weight = torch.ones(3, 8, requires_grad=True)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def multiply(x):
        return ct.linear(x, weight)

    with pytest.raises(Exception, match="no gradient"):
        multiply(numbers())
    with torch.no_grad():
        assert multiply(numbers()).shape == (6, 3)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def send(x):
        ct.send(x * weight[0], "graph")

    with pytest.raises(Exception, match="detach"):
        send(numbers())
    assert exporter.statistics().published == 0


@operators
def test_the_bare_operator_has_no_gradient():
    x = numbers().requires_grad_()
    result = torch.ops.cuda_link.linear(x, layer()[0])
    with pytest.raises(RuntimeError, match="autograd"):
        result.sum().backward()
