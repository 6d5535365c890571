"""Puts saved reports in order, and finds where the step time changed."""
