"""From a release's objects and a custom resource to the objects that must exist.

Pure: nothing here talks to a cluster, reads a clock or changes what it is given. One module per
concern; `pipeline` says which of them run, and in which order.
"""
