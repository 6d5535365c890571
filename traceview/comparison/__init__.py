"""Compares runs of the same job: what changed, by how much, how sure that is, and why."""
