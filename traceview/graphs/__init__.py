"""What the graphs of TensorFlow functions say: which ops they call, what these compute, and what depends on what."""
