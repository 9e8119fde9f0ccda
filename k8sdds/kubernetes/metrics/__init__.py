"""Parse metrics of nodes and pods, from which the background cost of a cluster's network is calculated.

Pure parsers of the output of the Kubernetes API, the kubelet and the node meter. To read from the API server,
they take a function `get` that returns the response for a URL path. The metrics API and the kubelet report
averages over 10 to 30 s, which are too coarse for a trial: the supervisor measures CPU and memory of trials.
"""
