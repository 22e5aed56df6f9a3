# SPDX-License-Identifier: MIT
"""CudaPort: the operations that an object had to have that stood in for CUDA, as a type to annotate with.
Here the library talks to the driver itself; only an importer over a script's own connection
(Importer.from_connection) calls these."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class CudaPort(Protocol):
    """The CUDA operations that scripts for cuda-link 1.x pass around. `Exporter.open` and
    `Importer.open` do not use one; `Importer.from_connection` does."""

    # the device and its errors
    def get_device(self) -> int:
        """The current device."""

    def set_device(self, device: int) -> Any:
        """Makes a device current; returns what restore_context takes."""

    def restore_context(self, context: Any) -> None:
        """Takes set_device back."""

    def peek_last_error(self) -> int:
        """The last error, kept."""

    def check_sticky_error(self, what: str) -> None:
        """Raises when the context is dead."""

    def check_ipc_capability(self, device: int) -> None:
        """Raises when the device can't share memory."""

    def get_runtime_version(self) -> int:
        """12040 for 12.4."""

    def synchronize(self) -> None:
        """Waits for the device."""

    # memory
    def malloc(self, size: int) -> Any:
        """Memory of the GPU."""

    def free(self, pointer: Any) -> None:
        """Its end."""

    def memcpy_async(self, to: Any, source: Any, size: int, kind: int, stream: Any) -> None:
        """Queues a copy."""

    def pointer_get_attributes(self, pointer: int) -> Any:
        """Of what kind and device an address is."""

    def malloc_host_alloc(self, size: int, flags: int = 1) -> Any:
        """Pinned memory."""

    def free_host(self, pointer: Any) -> None:
        """Its end."""

    def host_register(self, pointer: Any, size: int, flags: int = 0) -> None:
        """Pins memory."""

    def host_unregister(self, pointer: Any) -> None:
        """Its end."""

    # streams
    def create_stream(self, flags: int = 1) -> Any:
        """A stream; 1 = it does not wait for the default stream."""

    def create_stream_with_priority(self, flags: int, priority: int) -> Any:
        """The same, more or less urgent."""

    def destroy_stream(self, stream: Any) -> None:
        """Its end."""

    def stream_wait_event(self, stream: Any, event: Any, flags: int = 0) -> None:
        """The stream waits for the event."""

    def stream_synchronize(self, stream: Any) -> None:
        """The CPU waits for the stream."""

    def stream_query(self, stream: Any) -> bool:
        """Is it done?"""

    # events
    def create_ipc_event(self) -> Any:
        """An event that other processes can open."""

    def create_sync_event(self) -> Any:
        """An event of this process."""

    def record_event(self, event: Any, stream: Any = None) -> None:
        """Behind what is queued now."""

    def record_event_external(self, event: Any, stream: Any) -> None:
        """The same, while the stream captures."""

    def query_event(self, event: Any) -> bool:
        """Has it come so far?"""

    def destroy_event(self, event: Any) -> None:
        """Its end."""

    # between processes
    def ipc_get_mem_handle(self, pointer: Any) -> Any:
        """64 bytes that name memory."""

    def ipc_open_mem_handle(self, handle: Any) -> Any:
        """Maps another process's memory."""

    def ipc_close_mem_handle(self, pointer: Any) -> None:
        """Its end."""

    def ipc_get_event_handle(self, event: Any) -> Any:
        """64 bytes that name an event."""

    def ipc_open_event_handle(self, handle: Any) -> Any:
        """Another process's event."""

    # graphs
    def stream_begin_capture(self, stream: Any, mode: int = 2) -> None:
        """What is queued from now on becomes a graph."""

    def stream_end_capture(self, stream: Any) -> Any:
        """The graph."""

    def graph_instantiate(self, graph: Any) -> Any:
        """Makes a graph executable."""

    def graph_launch(self, executable: Any, stream: Any) -> None:
        """Queues it."""

    def graph_destroy(self, graph: Any) -> None:
        """The end of a graph."""

    def graph_exec_destroy(self, executable: Any) -> None:
        """The end of an executable one."""

    def graph_get_nodes(self, graph: Any) -> Any:
        """The nodes of a graph."""

    def graph_exec_memcpy_node_set_params_1d(
        self, executable: Any, node: Any, to: Any, source: Any, size: int, kind: int
    ) -> None:
        """Gives a copy in it other addresses."""


ImporterCudaPort = CudaPort
