"""Trains a small model, well or slowed down in a known way, and captures the run.

`training` is a training script like any other, `slowdowns` what can be done to it, `injection` measures how much time
each slowdown costs, and `run` captures it.
"""
