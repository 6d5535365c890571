"""Gives the checks one object with everything they ask of this machine, which a test can replace."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from traceview.capture.check.gpu_inventory import GpuInventory, read_inventory
from traceview.capture.check.libraries import Library, load_library
from traceview.capture.check.tensorflow_facts import (
    Imported,
    Installed,
    import_tensorflow,
    read_installed,
)


@dataclass(frozen=True)
class Machine:
    """The places and questions of the checks. `root`: where /proc and /usr are looked for."""

    environment: Mapping[str, str]
    root: Path = Path("/")
    site_packages: tuple[Path, ...] = ()
    installed: Callable[[], Installed] = read_installed
    imported: Callable[[Mapping[str, str]], Imported] = import_tensorflow
    inventory: Callable[[Path], GpuInventory] = read_inventory
    load: Callable[[Sequence[str], str, Mapping[str, str]], Library] = load_library

    @classmethod
    def here(cls) -> Machine:
        """This machine, with the environment of this process."""
        return cls(dict(os.environ), site_packages=tuple(Path(path) for path in sys.path if path))

    def with_environment(self, variables: Mapping[str, str]) -> Machine:
        """The same machine with these variables set as well."""
        return replace(self, environment={**self.environment, **variables})
