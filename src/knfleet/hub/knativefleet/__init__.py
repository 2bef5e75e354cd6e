"""KnativeFleets: a KnativeServing and KnativeEventing for each cluster, changed in waves."""
