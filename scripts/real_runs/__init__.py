"""Records training programs with one known slowdown each, and judges what traceview says of them.

`programs/` holds the programs, `table.py` what is right to say of each, `step_clock.py` the clock of the programs,
`truth.py` what a slowdown costs by that clock, `record.py` and `judge.py` the two commands of `python -m scripts.real_runs`.
"""
