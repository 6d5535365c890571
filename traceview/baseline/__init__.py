"""Keeps baselines: small reports, by name, in a folder that can be committed."""
