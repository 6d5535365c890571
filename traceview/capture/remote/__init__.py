"""Records jobs through profiler servers, and offers one in a script."""
