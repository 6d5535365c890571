"""Decides which calls of the step function are recorded, and how long steps take with the profiler and without."""
