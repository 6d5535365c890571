"""Captures scripts that train with JAX: their steps, JAX's profiler, and what the sidecar says of devices and functions."""
