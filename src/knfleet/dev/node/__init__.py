"""The stand-in for one cluster's kubelets, scheduler and service network."""
