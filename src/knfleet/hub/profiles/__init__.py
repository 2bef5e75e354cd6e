"""ClusterProfiles, published where a set of clusters is bound."""
