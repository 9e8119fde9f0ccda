"""Statistics and comparisons over run folders. Reads run folders only, never a testbed.

conditions       which columns distinguish cells, apart from the network
statistics       intervals, paired ratios, overheads, smallest detectable difference (pure functions)
tests            significance tests on log ratios (pure functions)
overhead         levels per cell, and overheads relative to the baseline network, paired within repetitions
contrast         one setting compared with another on the same network, such as multicast with unicast
protection       cost of DDS Security and of encrypting networks
comparison       two run folders or two networks, cell by cell
fail_condition   the condition of `k8sdds compare --fail-if` and `k8sdds claims --fail-if`
background_cost  what a network costs when no trial is running, from readings of the cluster's nodes
network_usage    the cost of a network between two readings of every node
kubectl_top      the values that `kubectl top` showed
histograms       latency distributions from the raw HdrHistogram logs
"""
