"""Tidy tables, statistics and comparisons over run folders. Reads `k8sdds.store` and nothing else.

tidy        one row per attempt; the last valid attempt of each trial
conditions  which columns tell cells apart besides the network
statistics  pure functions: intervals, paired ratios, overheads, smallest detectable difference
overhead    levels per cell, overheads against the baseline network, paired within repetition
contrast    one setting against another within a network, such as multicast against unicast
histograms  latency distributions from the raw HdrHistogram logs
"""
