"""What the capture wrote beside a trace: the process, its machine, samples and hangs."""
