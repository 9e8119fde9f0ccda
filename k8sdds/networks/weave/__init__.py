"""WeaveNet, with and without encryption."""
