"""What everything else is built on: errors, units, intervals and their compiled kernels, records, statistics, text."""
