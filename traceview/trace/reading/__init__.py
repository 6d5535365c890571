"""Finds, reads and joins the files of a run, here, in other processes or on a cluster."""
