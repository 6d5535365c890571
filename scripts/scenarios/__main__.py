"""Write a scenario to look at it: `python -m scripts.scenarios NAME DIR`, or `--list`."""

from __future__ import annotations

import argparse
from pathlib import Path

from scripts.scenarios import SCENARIOS


def _list() -> None:
    for name, build in SCENARIOS.items():
        print(f"{name}: {(build.__doc__ or '').splitlines()[0]}")


def main() -> None:
    """Parse the command line; print the files written."""
    parser = argparse.ArgumentParser(prog="python -m scripts.scenarios", description=__doc__)
    parser.add_argument("name", nargs="?", choices=sorted(SCENARIOS), metavar="NAME")
    parser.add_argument("directory", nargs="?", type=Path, metavar="DIR")
    parser.add_argument("--list", action="store_true", help="name all scenarios")
    arguments = parser.parse_args()
    if arguments.list:
        _list()
    elif arguments.name is None or arguments.directory is None:
        parser.error("NAME and DIR are needed, or --list")
    else:
        for path in SCENARIOS[arguments.name]().write(arguments.directory):
            print(path)


if __name__ == "__main__":
    main()
