"""Measures of a run that topics of several rooms state."""
