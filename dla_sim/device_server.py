"""The device as a process: registers and memory behind one local socket (docs/device.md).

A client, such as the C driver with ``dla_socket.c``, sends requests of 9 bytes and data. The module
serves one client at a time with a :class:`MappedDevice` whose runs are deferred.
"""

import contextlib
import socket
import struct
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path

from dla_sim.mapped import DeviceBus, MappedDevice
from isa.device import DEVICE_REGISTERS
from isa.errors import InputError

REQUEST = struct.Struct("<BII")
"""Kind of request, address, and value or number of bytes."""
REPLY = struct.Struct("<I")
STATUS = DEVICE_REGISTERS["STATUS"].offset
REFUSED = 1
"""Reply to an access outside the memory and to an unknown request."""


class RequestKind(IntEnum):
    """First byte of a request."""

    READ32 = 1
    WRITE32 = 2
    READ = 3
    WRITE = 4
    WAIT = 5


def serve(path: Path, device: MappedDevice, bus: DeviceBus, ready: Callable[[], object]) -> None:
    """Serve clients at the socket ``path``, one after another, until the process ends.

    Args:
        path: the socket; it is created and, at the end, deleted.
        device: the device, with deferred runs.
        bus: memory of the device.
        ready: called once a client can connect.

    Raises:
        InputError: the socket cannot be created.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise InputError(f"{path}: this system has no local sockets; use Linux or macOS")
    with socket.socket(socket.AF_UNIX) as listener:
        try:
            listener.bind(str(path))
        except OSError as error:
            raise InputError(f"{path}: {error.strerror or error}; choose another path") from error
        try:
            listener.listen()
            ready()
            while True:
                client, _ = listener.accept()
                with client, client.makefile("rb") as stream, contextlib.suppress(OSError):
                    while (head := stream.read(REQUEST.size)) and len(head) == REQUEST.size:
                        kind, address, value = REQUEST.unpack(head)
                        reply = answer(device, bus, kind, address, value, stream.read)
                        client.sendall(reply)
        finally:
            path.unlink(missing_ok=True)


def answer(
    device: MappedDevice,
    bus: DeviceBus,
    kind: int,
    address: int,
    value: int,
    receive: Callable[[int], bytes],
) -> bytes:
    """Execute one request and return the reply: a 32-bit word, and the bytes that READ asks for.

    ``receive`` returns the next bytes of the request. A run is busy until STATUS is read for the
    first time, or until WAIT; WAIT returns the level of the interrupt line.
    Raises ConnectionAbortedError for a WRITE outside the memory.
    """
    inside = any(low <= address and address + value <= high for low, high in bus.ranges)
    content, word = b"", 0
    if kind == RequestKind.READ32:
        word = device.read32(address)
        if address == STATUS:
            device.finish()
    elif kind == RequestKind.WRITE32:
        device.write32(address, value)
    elif kind == RequestKind.WAIT:
        device.finish()
        word = int(device.interrupt)
    elif kind == RequestKind.READ and inside:
        content = bus.read(address, value)
    elif kind == RequestKind.WRITE and inside:
        data = receive(value)
        if len(data) == value:
            bus.write(address, data)
    elif kind == RequestKind.WRITE:
        raise ConnectionAbortedError  # the client's data would be read as requests
    else:
        word = REFUSED
    return REPLY.pack(word) + content
