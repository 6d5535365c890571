"""Tools around traceview: generate and record traces, measure, set up. Not part of the package."""
