"""Trains a small model, well or slowed down in a known way.

`training` is a training script like any other, `slowdowns` what can be done to it, and `run` makes its command.
"""
