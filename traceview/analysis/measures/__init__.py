"""What several topics state of a run, one report a question."""
