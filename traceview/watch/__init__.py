"""Follows a log directory: what each new run says, and what of it has changed."""
