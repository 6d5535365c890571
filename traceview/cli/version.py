"""`traceview version`: what runs here? The lines that belong into a bug report."""

from __future__ import annotations


def version() -> None:
    """Show the versions of traceview and of what it runs on.

    Example: traceview version
    """
    import platform
    from importlib.metadata import version as version_of

    from traceview.cli.output import Target
    from traceview.version import VERSION
    from traceview.xplane.read import DECODER

    compiled = DECODER.__name__.endswith(".decode")
    rows = {
        "traceview": VERSION,
        "python": platform.python_version(),
        "numpy": version_of("numpy"),
        "protobuf": version_of("protobuf"),
        "decoder": "compiled"
        if compiled
        else "reference: the compiled one was not built, reading is slower",
    }
    Target(None).write("".join(f"{name:<10}{value}\n" for name, value in rows.items()))
