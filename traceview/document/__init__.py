"""Documents: what is to be shown, in no format, and the printers that write it."""
