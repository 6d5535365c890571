"""Writes the sidecar, and what it says of the process, its job and its machine."""
