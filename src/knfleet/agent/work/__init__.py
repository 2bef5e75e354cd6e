"""ManifestWorks on the cluster: applied, observed, reported, removed. Begins in `controller`."""
