"""How is a report shown? Renderers turn data into text; they format numbers and compute none."""
