"""Topics: what the devices compute."""
