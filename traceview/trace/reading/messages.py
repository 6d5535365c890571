"""Passes values between this process and a process that it started, arrays without a copy on the way.

A message is a pickle, so it may only come from a process of our own.
"""

from __future__ import annotations

import pickle
import struct
from io import BufferedReader
from typing import IO, Any, Final, cast

_COUNTS: Final = struct.Struct("<QQ")


def send(stream: IO[bytes], value: object) -> None:
    """Write a value: the sizes of its parts, its pickle, then the content of its arrays as it lies in memory."""
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    contents = [buffer.raw() for buffer in buffers]
    stream.write(_COUNTS.pack(len(head), len(contents)))
    stream.write(struct.pack(f"<{len(contents)}Q", *(content.nbytes for content in contents)))
    stream.write(head)
    for content in contents:
        stream.write(content)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """The next value; raises `EOFError` if the other side has ended before it was whole."""
    head_size, count = _COUNTS.unpack(_exactly(stream, _COUNTS.size))
    sizes = struct.unpack(f"<{count}Q", _exactly(stream, 8 * count))
    head = _exactly(stream, head_size)
    return pickle.loads(head, buffers=[_exactly(stream, size) for size in sizes])


def _exactly(stream: IO[bytes], size: int) -> bytearray:
    # The pipe of a process is one, whatever it is typed as; reading into the array saves a copy of a whole part.
    reader = cast(BufferedReader, stream)
    content = bytearray(size)
    rest = memoryview(content)
    while rest.nbytes:
        count = reader.readinto(rest)
        if not count:
            raise EOFError
        rest = rest[count:]
    return content
