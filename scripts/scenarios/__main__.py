"""Write a scenario to look at it: `python -m scripts.scenarios NAME DIR`, or `--list`."""

from __future__ import annotations

import argparse
from pathlib import Path

from scripts.scenarios import SCENARIOS, Scenario
from scripts.scenarios.mixtures import mixture


def _list() -> None:
    for name, build in SCENARIOS.items():
        print(f"{name}: {(build.__doc__ or '').splitlines()[0]}")


def _chosen(name: str) -> Scenario:
    """The scenario of a name, or the mixture of a seed: `mixture-17`."""
    kind, _, seed = name.partition("-")
    if kind == "mixture" and seed.isdecimal():
        return mixture(int(seed)).scenario
    if name not in SCENARIOS:
        raise argparse.ArgumentTypeError(f"no scenario is called {name!r}; --list names all")
    return SCENARIOS[name]()


def main() -> None:
    """Parse the command line; print the files written."""
    parser = argparse.ArgumentParser(prog="python -m scripts.scenarios", description=__doc__)
    parser.add_argument(
        "scenario", nargs="?", type=_chosen, metavar="NAME", help="of a scenario, or mixture-SEED"
    )
    parser.add_argument("directory", nargs="?", type=Path, metavar="DIR")
    parser.add_argument("--list", action="store_true", help="name all scenarios")
    arguments = parser.parse_args()
    if arguments.list:
        _list()
    elif arguments.scenario is None or arguments.directory is None:
        parser.error("NAME and DIR are needed, or --list")
    else:
        for path in arguments.scenario.write(arguments.directory):
            print(path)


if __name__ == "__main__":
    main()
