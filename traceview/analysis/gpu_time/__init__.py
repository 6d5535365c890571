"""Topics: where the time of the devices goes."""
