"""The tables of a trace, and the DataFrames made of them."""
