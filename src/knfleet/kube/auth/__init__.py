"""How to reach a cluster and authenticate: kubeconfigs, tokens, plugins, TLS."""
