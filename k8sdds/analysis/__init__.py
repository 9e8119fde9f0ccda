"""Statistics and comparisons over run folders. Reads run folders only, never a testbed.

conditions       which columns distinguish cells, apart from the network
statistics       intervals, paired ratios, significance tests, smallest detectable difference (pure functions)
overhead         levels per cell, and overheads relative to the baseline network or to the same one without protection
contrast         one setting compared with another on the same network, such as multicast with unicast
limit            DDS compared with plain UDP on the same network
comparison       two run folders or two networks, cell by cell
fail_condition   the condition of `k8sdds compare --fail-if` and `k8sdds claims --fail-if`
history          the runs of a repeated experiment since which a metric is different
capacity         the search for the highest rate that meets goals; `capacities` evaluates it
requirements     whether configurations of an application meet its requirements
selection, race  which configuration is the best, and which trials show it
background_cost  what a network costs when no trial is running, from readings of the cluster's nodes
profile          sampled CPU time by component of the datapath
"""
