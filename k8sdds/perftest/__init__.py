"""PerfTest's grammar: options that its programs share, the output of participants, and logs."""
