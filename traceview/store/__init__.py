"""Reads and writes files that lie in object stores."""
