"""Captures processes: a script, its children, and whatever Python a command starts."""
