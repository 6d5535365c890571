"""Keeps to itself in the process of a script: threads, frames, imports, signals, and how the script runs."""
