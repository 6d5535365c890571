"""Topics: what devices, hosts and replicas give each other, and how evenly they work."""
