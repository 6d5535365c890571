"""Does an address of the cluster answer, and is a port of this host free?"""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from threading import Thread
from time import monotonic
from typing import Final, Literal, Protocol

TIMEOUT_SECONDS: Final = 1.0
Answer = Literal["listening", "refused", "silent", "unknown name"]


class Network(Protocol):
    """What checks ask of the network."""

    def ask(self, addresses: Sequence[tuple[str, int]]) -> dict[tuple[str, int], Answer]:
        """Try to connect to each address, and say nothing on the connection."""

    def is_free(self, port: int) -> bool:
        """Whether a program could listen on this port here."""


class SocketNetwork:
    """The real one: all addresses at once, within about a second."""

    def ask(self, addresses: Sequence[tuple[str, int]]) -> dict[tuple[str, int], Answer]:
        """As the protocol says; an address without an answer in time is `silent`."""
        answers: dict[tuple[str, int], Answer] = dict.fromkeys(addresses, "silent")

        def ask_one(address: tuple[str, int]) -> None:
            answers[address] = _ask(address)

        # Looking up a name knows no timeout: a thread that hangs is left behind.
        threads = [Thread(target=ask_one, args=(one,), daemon=True) for one in answers]
        for thread in threads:
            thread.start()
        end = monotonic() + 1.5 * TIMEOUT_SECONDS
        for thread in threads:
            thread.join(max(end - monotonic(), 0))
        return dict(answers)

    def is_free(self, port: int) -> bool:
        """As the protocol says. The port is bound for a moment, never listened on."""
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError as error:
                return error.errno != errno.EADDRINUSE
        return True


def _ask(address: tuple[str, int]) -> Answer:
    try:
        socket.create_connection(address, timeout=TIMEOUT_SECONDS).close()
    except (socket.gaierror, UnicodeError):
        return "unknown name"
    except ConnectionError:
        return "refused"
    except OSError:
        return "silent"
    return "listening"
