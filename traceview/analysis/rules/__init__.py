"""Rules, findings and their words."""
