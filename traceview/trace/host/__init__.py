"""What the threads of a host did while devices were idle, and the stages of its input."""
