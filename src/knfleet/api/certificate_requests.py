"""CertificateSigningRequests, by which agents get their client certificates."""

from knfleet.api.meta import Resource

CERTIFICATES_GROUP = "certificates.k8s.io"
CSRS = Resource(
    CERTIFICATES_GROUP,
    "v1",
    "CertificateSigningRequest",
    "certificatesigningrequests",
    namespaced=False,
)
SIGNER = "kubernetes.io/kube-apiserver-client"
GRPC_SIGNER = "open-cluster-management.io/grpc"
"""Signs certificates for the gRPC server, which no API server accepts."""
USAGES = ("digital signature", "key encipherment", "client auth")
CSR_USER = "open-cluster-management.io/csr-user"
"""Annotation: who asked the gRPC server for a certificate. Only that server may set it."""
