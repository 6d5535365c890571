"""The events of devices: their classes, ops, launches, copies and memory; and tables of them."""
