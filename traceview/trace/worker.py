"""Runs as a process that reads hosts for another one: files come in on standard input, parts go out on standard output.

It ends as soon as the other process does, however that ended.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from queue import SimpleQueue
from threading import Thread
from typing import IO, Any

from traceview.errors import TraceviewError
from traceview.trace.messages import receive, send
from traceview.trace.part import read_host


def main() -> None:
    """Answer one request after the other."""
    # Its life is short, and what it makes has no circles.
    gc.disable()
    # Nothing else gets between the parts: what is printed goes to standard error.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests: SimpleQueue[Any] = SimpleQueue()
    Thread(target=_listen, args=(sys.stdin.buffer, requests), daemon=True).start()
    while True:
        path, salvage = requests.get()
        answer: object
        try:
            answer = read_host(path, salvage=salvage)
        except (TraceviewError, MemoryError) as error:
            answer = error
        except Exception:
            answer = RuntimeError(f"in a worker:\n{traceback.format_exc()}")
        send(answers, answer)


def _listen(stream: IO[bytes], requests: SimpleQueue[Any]) -> None:
    """Pass requests on; the end of the stream is the end of the process, whatever it is doing."""
    try:
        while True:
            requests.put(receive(stream))
    except EOFError:
        os._exit(0)
