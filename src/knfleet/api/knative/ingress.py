"""How Serving's ingress is chosen and configured."""

from typing import Annotated, Literal

from msgspec import Struct, field

from knfleet.api.knative.overrides import Labels
from knfleet.api.schema import Int32, Port, doc

TLS_MODES = ["PASSTHROUGH", "SIMPLE", "MUTUAL", "AUTO_PASSTHROUGH", "ISTIO_MUTUAL"]


class ServerPort(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The port that a gateway's server listens on."""

    number: Annotated[Port, doc("Number of the port.")] = 0
    protocol: Annotated[str, doc("HTTP, HTTPS, GRPC, HTTP2, MONGO, TCP or TLS.")] = ""
    name: Annotated[str, doc("Label of the port.")] = ""
    target_port: Annotated[Port, doc("Port that traffic is sent on to.")] = 0


class ServerTls(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """TLS of a gateway's server."""

    https_redirect: Annotated[bool, doc("Whether plain HTTP is answered by a redirect.")] = False
    mode: Annotated[str, doc("TLS mode; PASSTHROUGH when empty.", enum=TLS_MODES)] = ""
    server_certificate: Annotated[str, doc("File of the server's certificate.")] = ""
    private_key: Annotated[str, doc("File of the server's private key.")] = ""
    ca_certificates: Annotated[str, doc("File of the authorities that clients are checked by.")] = (
        ""
    )
    credential_name: Annotated[str, doc("Secret that holds certificate and key.")] = ""
    subject_alt_names: Annotated[list[str], doc("Names that a client may show.")] = []
    verify_certificate_spki: Annotated[list[str], doc("Accepted hashes of public keys.")] = []
    verify_certificate_hash: Annotated[list[str], doc("Accepted hashes of certificates.")] = []
    min_protocol_version: Annotated[
        Int32, doc("Oldest protocol: 0 automatic, 1 TLS 1.0, 2 TLS 1.1, 3 TLS 1.2, 4 TLS 1.3.")
    ] = 0
    max_protocol_version: Annotated[
        Int32, doc("Newest protocol: 0 automatic, 1 TLS 1.0, 2 TLS 1.1, 3 TLS 1.2, 4 TLS 1.3.")
    ] = 0
    cipher_suites: Annotated[list[str], doc("Accepted cipher suites.")] = []


class Server(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One server of an Istio gateway."""

    port: Annotated[ServerPort | None, doc("The port to listen on.")] = None
    bind: Annotated[str, doc("Address to listen on.")] = ""
    hosts: Annotated[list[str], doc("Hosts that are served.")] = []
    tls: Annotated[ServerTls | None, doc("TLS of this server.")] = None
    default_endpoint: Annotated[str, doc("Where traffic goes when no route fits.")] = ""
    name: Annotated[str, doc("Name of the server.")] = ""


class GatewayOverride(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What to change in an Istio gateway."""

    selector: Annotated[Labels, doc("Replaces the gateway's selector.")] = {}
    servers: Annotated[list[Server], doc("Replace the gateway's servers.")] = []


class IstioIngress(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ingress by Istio, which must be on the cluster."""

    enabled: Annotated[bool, doc("Whether it is installed.")] = False
    ingress_gateway: Annotated[
        GatewayOverride | None, doc("The gateway for traffic from outside.")
    ] = field(default=None, name="knative-ingress-gateway")
    local_gateway: Annotated[
        GatewayOverride | None, doc("The gateway for traffic inside the cluster.")
    ] = field(default=None, name="knative-local-gateway")


class KourierIngress(Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """Ingress by Kourier, which needs nothing else."""

    enabled: Annotated[bool, doc("Whether it is installed.")] = False
    service_type: Annotated[str, doc("Type of its Service: ClusterIP, LoadBalancer, NodePort.")] = (
        ""
    )
    service_load_balancer_ip: Annotated[str, doc("Address that the load balancer should take.")] = (
        ""
    )
    http_port: Annotated[Port, doc("Node port for HTTP.")] = 0
    https_port: Annotated[Port, doc("Node port for HTTPS.")] = 0
    bootstrap_configmap: Annotated[str, doc("ConfigMap with Envoy's bootstrap configuration.")] = ""


class ContourIngress(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ingress by Contour, which must be on the cluster."""

    enabled: Annotated[bool, doc("Whether it is installed.")] = False


class GatewayApiIngress(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ingress by an implementation of the Gateway API, which must be on the cluster."""

    enabled: Annotated[bool, doc("Whether it is installed.")] = False


IngressName = Literal["istio", "contour", "kourier", "gateway-api"]


class Ingress(Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """The ingress plugins to install; several may be."""

    istio: Annotated[IstioIngress, doc("Istio.")] = IstioIngress()
    kourier: Annotated[KourierIngress, doc("Kourier.")] = KourierIngress()
    contour: Annotated[ContourIngress, doc("Contour.")] = ContourIngress()
    gateway_api: Annotated[GatewayApiIngress, doc("Gateway API.")] = GatewayApiIngress()

    def enabled(self) -> list[IngressName]:
        """The plugins that are on, in the order in which their manifests are installed."""
        chosen: list[tuple[IngressName, bool]] = [
            ("istio", self.istio.enabled),
            ("contour", self.contour.enabled),
            ("kourier", self.kourier.enabled),
            ("gateway-api", self.gateway_api.enabled),
        ]
        return [name for name, on in chosen if on]


ISTIO_ASSUMED = Ingress(istio=IstioIngress(enabled=True))
"""What an absent `spec.ingress` means."""
