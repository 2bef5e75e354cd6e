"""One process that stands in for the kubelet, scheduler and service network of one cluster.

Pods of our own image run as processes of this machine; all others are simulated. See `pods` for
the heart of it, `machine` for how the parts are connected, `annotations` for how to change what
happens to a pod.
"""
