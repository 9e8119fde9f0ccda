"""The grammar of PerfTest: options that its programs share, the output of participants, and logs."""
