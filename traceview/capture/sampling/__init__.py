"""Samples what the trace does not show while the window is open: Python, the GPUs, the load of the machine."""
