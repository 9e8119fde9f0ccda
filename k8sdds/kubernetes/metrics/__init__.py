"""What a cluster's network costs beside the trials: readings of nodes and pods, and what they come to.

Pure parsers of what the Kubernetes API, the kubelets and our meter say. Whoever reads gives a function `get`
that answers a raw path of the API server; nothing here knows a client library. `kubectl top` and the kubelet
give averages of 10 to 30 s, so nothing here is the record of a trial: that is the supervisor's.
"""
