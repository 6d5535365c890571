"""Runs as a process that reads hosts for another one.

Requests come in on standard input, what was read goes out on standard output. It ends as soon as the other process
does, however that ended. A message is a pickle, so it may only come from a process of our own.
"""

from __future__ import annotations

import gc
import os
import pickle
import struct
import sys
import traceback
from io import BufferedReader
from queue import SimpleQueue
from threading import Thread
from typing import IO, Any, Final, cast

from msgspec import Struct

from traceview.base.errors import TraceviewError
from traceview.base.location import Location
from traceview.trace.reading.part import read_host

_COUNTS: Final = struct.Struct("<QQ")


class Request(Struct, frozen=True):
    """A file to read, with its number among others."""

    number: int
    path: Location
    salvage: bool


def main() -> None:
    """Answer one request after the other."""
    # Its life is short, and what it makes has no circles.
    gc.disable()
    # Nothing else gets between the parts: what is printed goes to standard error.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests: SimpleQueue[Request] = SimpleQueue()
    Thread(target=_listen, args=(sys.stdin.buffer, requests), daemon=True).start()
    while True:
        request = requests.get()
        answer: object
        try:
            answer = read_host(request.path, salvage=request.salvage)
        except (TraceviewError, MemoryError) as error:
            answer = error
        except Exception:
            answer = RuntimeError(f"in a worker:\n{traceback.format_exc()}")
        send(answers, answer)
        del answer


def _listen(stream: IO[bytes], requests: SimpleQueue[Request]) -> None:
    """Pass requests on; the end of the stream is the end of the process, whatever it is doing."""
    try:
        while True:
            requests.put(receive(stream))
    except EOFError:
        os._exit(0)


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
