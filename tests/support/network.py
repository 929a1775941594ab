"""A network between processes of this machine that can be cut, for each node and in each direction.

A node listens on one port and advertises another, which belongs to this network and forwards connections. The sender is
the process that owns the socket, found in /proc. While a direction is cut, its bytes wait and arrive after `mend`, as
between hosts that lose packets. A new connection needs both directions.
"""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

LOCALHOST: Final = "127.0.0.1"
PIECE_BYTES: Final = 1 << 16


class Network:
    """Forwards connections to nodes until the block ends. It has its own thread, and is used from others."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._pids: dict[int, Callable[[], int | None]] = {}
        self._into: set[int] = set()
        self._out_of: set[int] = set()
        self._changed = asyncio.Event()
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()

    def way_to(self, node_id: int, port: int, pid: Callable[[], int | None]) -> int:
        """Returns the port to advertise for a node that listens on `port`. `pid` returns its process id, or None."""
        self._pids[node_id] = pid
        found: int = self._do(self._serve(node_id, port))
        return found

    def cut(self, node_id: int, *, into: bool, out_of: bool) -> None:
        """Cut the traffic to a node, from it, or both."""
        self._do(self._change(node_id, into, out_of))

    def mend(self, node_id: int) -> None:
        """End the cut; waiting bytes are forwarded."""
        self._do(self._change(node_id, False, False))

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    # --- on the loop

    async def _serve(self, node_id: int, port: int) -> int:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            with suppress(asyncio.CancelledError):  # when the network ends
                await self._pass_on(node_id, port, reader, writer)
            self._tasks.discard(task)
            writer.close()

        server = await asyncio.start_server(connected, LOCALHOST, 0)
        self._servers.append(server)
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    async def _change(self, node_id: int, into: bool, out_of: bool) -> None:
        for cuts, is_cut in ((self._into, into), (self._out_of, out_of)):
            (cuts.add if is_cut else cuts.discard)(node_id)
        self._changed.set()
        self._changed = asyncio.Event()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _passes(self, source: int | None, target: int | None) -> None:
        while target in self._into or source in self._out_of:
            await self._changed.wait()

    async def _pass_on(
        self, target: int, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Forward in both directions until either side closes."""
        source = self._owner(writer.get_extra_info("peername")[1], writer.get_extra_info("sockname")[1])
        with suppress(OSError):
            for way in ((source, target), (target, source)) * 2:  # one may be cut while waiting for the other
                await self._passes(*way)
            there, back = await asyncio.open_connection(LOCALHOST, port)
            try:
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._pump(source, target, reader, back))
                    both.create_task(self._pump(target, source, there, writer))
            finally:
                back.close()

    async def _pump(
        self, source: int | None, target: int | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        data = b"-"
        with suppress(OSError):
            while data:
                data = await reader.read(PIECE_BYTES)
                await self._passes(source, target)
                writer.write(data)
                await writer.drain()
        writer.close()

    def _owner(self, port: int, ours: int) -> int | None:
        """The node that connected from a port to a port of this network; None for other processes."""
        link = f"socket:[{_inode_of(port, ours)}]"
        for node_id, pid in self._pids.items():
            if (found := pid()) is not None and _has_open(found, link):
                return node_id
        return None


def _inode_of(port: int, remote: int) -> str:
    """The inode of the socket that is connected from a port to another; empty if there is none."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table, encoding="ascii") as lines:
            next(lines)
            for line in lines:
                fields = line.split()
                if [int(each.rpartition(":")[2], 16) for each in fields[1:3]] == [port, remote]:
                    return fields[9]
    return ""


def _has_open(pid: int, link: str) -> bool:
    folder = f"/proc/{pid}/fd"
    with suppress(OSError):
        for name in os.listdir(folder):
            with suppress(OSError):
                if os.readlink(f"{folder}/{name}") == link:
                    return True
    return False
