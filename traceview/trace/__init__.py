"""What happened, in the words of the domain: hosts, devices, events, launches, steps."""
