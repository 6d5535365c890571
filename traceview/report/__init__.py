"""The report: everything that is said about a trace, as plain data."""
