"""Topics: each computes one result of a report from a trace, draws its conclusions and describes its section."""
