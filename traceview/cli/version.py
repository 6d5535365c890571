"""Defines `traceview version`: the versions that a bug report should name."""

from __future__ import annotations


def version() -> None:
    """Show the versions of traceview and of its dependencies.

    Example: traceview version
    """
    import platform
    from importlib.metadata import version as version_of

    from traceview.cli.output import Target
    from traceview.version import VERSION
    from traceview.xplane.read import DECODER

    is_compiled = DECODER.__name__.endswith(".decode")
    rows = {
        "traceview": VERSION,
        "python": platform.python_version(),
        "numpy": version_of("numpy"),
        "decoder": "compiled"
        if is_compiled
        else "reference: slower; the compiled decoder was not built",
    }
    Target(None).write("".join(f"{name:<10}{value}\n" for name, value in rows.items()))
