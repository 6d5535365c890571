"""Other programs that show a trace, and the report in a browser: on copies, so that nothing is written beside a trace."""
