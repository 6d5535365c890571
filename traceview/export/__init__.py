"""How do a run's events and what was found in them get into other programs? Perfetto, Chrome, and tables."""
