"""The XPlane file format: only this package knows its field numbers, plane names and stat names."""
