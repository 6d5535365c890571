"""Judges a report by conditions: budgets in numbers, and changes against a baseline."""
