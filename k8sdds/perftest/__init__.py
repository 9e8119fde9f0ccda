"""perftest seen from Python: a trial becomes command lines, its output becomes a summary."""
