"""Finds, reads and joins the files of a run, here or on a cluster."""
