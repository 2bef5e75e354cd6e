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
USAGES = ("digital signature", "key encipherment", "client auth")
