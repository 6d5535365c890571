"""The report: everything that traceview says about a trace, as plain data."""
