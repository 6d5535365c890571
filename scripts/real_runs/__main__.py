"""Record the training programs, or judge what traceview says of the recordings.

python -m scripts.real_runs record OUT [NAME …]     with the Python that has TensorFlow, or JAX
python -m scripts.real_runs judge OUT [NAME …]
python -m scripts.real_runs advise OUT [NAME …]     what following the advice saves, of programs that do
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from scripts.real_runs import judge
from scripts.real_runs.advice import saved_share
from scripts.real_runs.record import record
from scripts.real_runs.table import PROGRAMS

HALF: Final = 0.5
"""Of the cost: advice that saves as much is right."""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.real_runs", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("command", choices=("record", "judge", "advise"))
    parser.add_argument("out", type=Path, metavar="OUT", help="folder of the recordings")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="programs; by default all that need no GPU"
    )
    parser.add_argument("--repeat", type=int, default=3, help="slow recordings")
    parser.add_argument("--rounds", type=int, default=8, help="advised runs, of `advise`")
    parser.add_argument("--keep", action="store_true", help="record only what is not there yet")
    options = parser.parse_intermixed_args()
    if unknown := set(options.names) - PROGRAMS.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(PROGRAMS)}")
    names = options.names or [name for name, one in PROGRAMS.items() if not one.needs_gpu]
    programs = [PROGRAMS[name] for name in names]
    if options.command == "record":
        for program in programs:
            folder = options.out / program.name
            if not (options.keep and folder.exists()):
                record(program, folder, options.repeat)
                print(f"{program.name}: recorded", flush=True)
        return
    if options.command == "advise":
        shares = {}
        for program in filter(lambda program: program.advice, programs):
            shares[program.name] = share = saved_share(
                program, options.rounds, options.out / program.name
            )
            print(f"{program.name:24} {share:5.0%}  {program.advice} …", flush=True)
        most = sum(share >= HALF for share in shares.values())
        print(f"half of the cost or more: {most} of {len(shares)}")
        return
    judgements = []
    for program in programs:
        for judgement in judge.judge_folder(program, options.out / program.name):
            judgements.append(judgement)
            print(judge.line(judgement), flush=True)
    for text in judge.totals(judgements):
        print(text)


if __name__ == "__main__":
    main()
