"""Writes the events of a run, and what traceview computed, for other programs: Perfetto, Chrome, and tables."""
