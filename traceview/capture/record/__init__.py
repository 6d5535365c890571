"""Records one window with TensorFlow's profiler, and keeps the trace in its run."""
