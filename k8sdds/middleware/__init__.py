"""The middleware plug point: what runs below perftest, one module each."""
