"""The XPlane file format: nobody outside this package knows a field number, a plane name or a stat name."""
