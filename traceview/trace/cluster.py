raise ImportError
