"""Compares the numbers of XProf with those of traceview, and explains the differences."""
