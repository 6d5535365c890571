"""Starts other programs that show a run, on a copy so that they write nothing beside it, and serves the report."""
