"""Accounts for every picosecond of every device: what it did, or what it waited for, and who caused that."""
