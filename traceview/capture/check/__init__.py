"""Checks before a run what would go wrong in a capture, and changes nothing."""
