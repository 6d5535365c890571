"""The command line: one file per command, which parses its options, calls the library and writes."""

from __future__ import annotations


def main() -> None:
    """Run `traceview` with the arguments of this process; ends it with an exit code."""
    import atexit
    import gc
    import sys

    codes: list[int] = []
    # What is registered first runs last.
    atexit.register(_leave, codes)
    # A command that reads, prints and ends collects no garbage: its process ends soon.
    gc.disable()
    try:
        if sys.argv[1:2] == ["capture"]:
            # A script should not wait for the libraries of a command line that it does not need.
            from traceview.capture.launch.command import become_at_once

            become_at_once(sys.argv[2:])
        from traceview.cli.app import app

        app(prog_name="traceview")
    except SystemExit as ended:
        if ended.code is None or isinstance(ended.code, int):
            codes.append(ended.code or 0)
        raise
    except KeyboardInterrupt:
        # Before or after a command; those inside one are handled by its group.
        sys.stderr.write("traceview: interrupted; nothing was written\n")
        sys.exit(130)
    except OSError as error:
        # The help could not be printed; a command says so itself.
        from traceview.cli.output import abandon_stdout

        abandon_stdout()
        sys.stderr.write(f"traceview: error: cannot write to standard output: {error.strerror}\n")
        sys.exit(2)


def _leave(codes: list[int]) -> None:
    """End the process with the exit code that it would have, if it is known: what it read is not taken apart first."""
    import os
    import sys

    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        # Python says so, and takes another exit code.
        return
    if codes:
        os._exit(codes[0])
