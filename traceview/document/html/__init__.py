"""Prints documents as one HTML page, with its charts and its assets."""
