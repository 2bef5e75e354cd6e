"""ManifestWorks on the hub: validation, time to live, what informers keep of them."""
