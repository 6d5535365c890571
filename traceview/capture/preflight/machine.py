"""What can be asked of this machine? One object, so that a test can put another machine in its place."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from traceview.capture.preflight.gpu_inventory import GpuInventory, read_inventory, read_proc
from traceview.capture.preflight.libraries import Library, load_library
from traceview.capture.preflight.network import Network, SocketNetwork
from traceview.capture.preflight.tensorflow_facts import (
    Imported,
    Installed,
    import_tensorflow,
    read_installed,
)


@dataclass(frozen=True)
class Machine:
    """The places and questions of the checks. `root` is where /proc, /dev and /usr are looked for."""

    environment: Mapping[str, str]
    root: Path = Path("/")
    site_packages: tuple[Path, ...] = ()
    installed: Callable[[], Installed] = read_installed
    imported: Callable[[Mapping[str, str]], Imported] = import_tensorflow
    inventory: Callable[[Path], GpuInventory] = read_inventory
    load: Callable[[Sequence[str], str, Mapping[str, str]], Library] = load_library
    network: Network = field(default_factory=SocketNetwork)

    @classmethod
    def here(cls) -> Machine:
        """This one, with the environment of this process."""
        return cls(dict(os.environ), site_packages=tuple(Path(path) for path in sys.path if path))

    def with_environment(self, variables: Mapping[str, str]) -> Machine:
        """The same machine with these variables set as well."""
        return Machine(
            {**self.environment, **variables},
            self.root,
            self.site_packages,
            self.installed,
            self.imported,
            self.inventory,
            self.load,
            self.network,
        )

    def gpus_of_driver(self) -> GpuInventory:
        """What the driver shows below /proc: at once, and without its library."""
        return read_proc(self.root / "proc")
