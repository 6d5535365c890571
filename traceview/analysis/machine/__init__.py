"""Topics: the machine, the capture and the process."""
