"""Numbers of the fields by which the reader finds its way through an XSpace; what is inside the fields only the decoders know.

Source: openxla/xla `tsl/profiler/protobuf/xplane.proto`.
"""

from __future__ import annotations

from typing import Final

SPACE_PLANES: Final = 1
SPACE_ERRORS: Final = 2
SPACE_WARNINGS: Final = 3
SPACE_HOSTNAMES: Final = 4
PLANE_NAME: Final = 2
PLANE_LINES: Final = 3
PLANE_EVENT_METADATA: Final = 4
