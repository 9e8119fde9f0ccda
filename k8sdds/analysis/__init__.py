"""Statistics and comparisons over run folders. Reads run folders only, never a testbed."""
