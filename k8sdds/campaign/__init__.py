"""Run an experiment: preflight checks, the measurement loop, and the record of each attempt."""
