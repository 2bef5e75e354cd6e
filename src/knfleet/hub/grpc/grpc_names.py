"""Names of the gRPC server's objects on the hub, beside those of `api.operator`."""

PORT = 8090
SIGNER_SECRET = "signer-secret"  # noqa: S105  a name
SERVING_SECRET = "grpc-server-serving-cert"  # noqa: S105  a name
BUNDLE_CONFIG_MAP = "ca-bundle-configmap"
BUNDLE_KEY = "ca-bundle.crt"
