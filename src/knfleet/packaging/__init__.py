"""How knfleet is put on a cluster: the objects, and the Helm chart that is made of the same."""
