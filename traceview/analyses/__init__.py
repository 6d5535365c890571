"""One question per module, asked of a whole trace: pure functions from columns to results and findings."""
