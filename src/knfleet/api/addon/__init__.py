"""The add-on API of Open Cluster Management, v1alpha1 (stored) and v1beta1."""
