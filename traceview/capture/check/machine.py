"""Gives the checks one object with everything they ask of this machine, which a test can replace."""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Thread
from time import monotonic
from typing import Final, Literal

from traceview.capture.check.gpu_inventory import GpuInventory, read_inventory, read_proc
from traceview.capture.check.libraries import Library, load_library
from traceview.capture.check.tensorflow_facts import (
    Imported,
    Installed,
    import_tensorflow,
    read_installed,
)

TIMEOUT_SECONDS: Final = 1.0
"""Within a data center an answer takes milliseconds."""
Answer = Literal["listening", "refused", "silent", "unknown name"]


class Network:
    """What checks ask of the network."""

    def ask(self, addresses: Sequence[tuple[str, int]]) -> dict[tuple[str, int], Answer]:
        """Try to connect to all addresses at once, within about a second, and send nothing.

        An address without an answer in time is `silent`.
        """
        answers: dict[tuple[str, int], Answer] = dict.fromkeys(addresses, "silent")

        def ask_one(address: tuple[str, int]) -> None:
            answers[address] = _ask(address)

        # Looking up a name has no timeout: a thread that hangs is left behind.
        threads = [Thread(target=ask_one, args=(key,), daemon=True) for key in answers]
        for thread in threads:
            thread.start()
        end = monotonic() + 1.5 * TIMEOUT_SECONDS
        for thread in threads:
            thread.join(max(end - monotonic(), 0))
        return dict(answers)

    def is_free(self, port: int) -> bool:
        """Whether a program could listen on this port; it is bound for a moment, never listened on."""
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


@dataclass(frozen=True)
class Machine:
    """The places and questions of the checks. `root`: where /proc, /dev and /usr are looked for."""

    environment: Mapping[str, str]
    root: Path = Path("/")
    site_packages: tuple[Path, ...] = ()
    installed: Callable[[], Installed] = read_installed
    imported: Callable[[Mapping[str, str]], Imported] = import_tensorflow
    inventory: Callable[[Path], GpuInventory] = read_inventory
    load: Callable[[Sequence[str], str, Mapping[str, str]], Library] = load_library
    network: Network = field(default_factory=Network)

    @classmethod
    def here(cls) -> Machine:
        """This machine, with the environment of this process."""
        return cls(dict(os.environ), site_packages=tuple(Path(path) for path in sys.path if path))

    def with_environment(self, variables: Mapping[str, str]) -> Machine:
        """The same machine with these variables set as well."""
        return replace(self, environment={**self.environment, **variables})

    def gpus_of_driver(self) -> GpuInventory:
        """What the driver shows below /proc, which takes no time and no library."""
        return read_proc(self.root / "proc")
