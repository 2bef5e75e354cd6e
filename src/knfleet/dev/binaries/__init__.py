"""Where etcd, kube-apiserver, kube-controller-manager and kubectl come from."""
