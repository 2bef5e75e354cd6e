"""Certificate requests of add-ons' agents, as the server writes them for a cluster's agent. Pure.

Who is approved is decided by the controllers of add-ons, by the user in the annotation. The server
makes the request with an account of its own, so it makes none whose subject could be another's.
"""

import re

from knfleet.api.addon.names import (
    ADDON_LABEL,
    KUBE_CLIENT_SIGNER,
    addon_groups,
    addon_user,
)
from knfleet.api.certificate_requests import CSR_USER, CSRS
from knfleet.api.cluster.managedcluster import CLUSTER_NAME_LABEL
from knfleet.api.meta import Object
from knfleet.cloudevents.cloud_event import EventError
from knfleet.hub.addon.registration.agent_rights import AUTHENTICATED
from knfleet.hub.addon.registration.certificate_rules import AddOnRequest, examine
from knfleet.hub.grpc.calls.caller import Caller
from knfleet.hub.grpc.calls.payload_rules import CSR_SPEC, named, part
from knfleet.hub.registration.drivers.csr_rules import RequestProblem

ADDON_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
RESERVED = "system:"
KUBERNETES_SIGNERS = "kubernetes.io/"


def addon_of(manifest: Object) -> str:
    """The add-on that a request is for; empty when it is for none."""
    labels = part(manifest["metadata"], "labels")
    return str(labels.get(ADDON_LABEL, ""))


def addon_request(manifest: Object, cluster: str, caller: Caller) -> Object:
    """A request for a certificate of an add-on's agent; raises `EventError`."""
    addon = addon_of(manifest)
    if caller.cluster != cluster:
        raise EventError(f"only an agent of cluster {cluster} requests certificates of its add-ons")
    if not ADDON_NAME.fullmatch(addon):
        raise EventError("the label of the certificate request is not the name of an add-on")
    named(manifest)
    prefix = f"addon-{cluster}-{addon}-"
    if not manifest["metadata"]["name"].startswith(prefix):
        raise EventError(f"certificate requests of add-on {addon} are called {prefix}…")
    spec = part(manifest, "spec")
    made: Object = {
        "apiVersion": CSRS.api_version,
        "kind": CSRS.kind,
        "metadata": {
            "name": manifest["metadata"]["name"],
            "labels": {CLUSTER_NAME_LABEL: cluster, ADDON_LABEL: addon},
            "annotations": {CSR_USER: caller.user},
        },
        "spec": {
            "signerName": spec.get("signerName"),
            **{key: spec[key] for key in CSR_SPEC if spec.get(key) is not None},
        },
    }
    try:
        found = examine(made)
    except (TypeError, AttributeError) as error:
        raise EventError("the certificate request has fields of another type") from error
    problem = found.reason if isinstance(found, RequestProblem) else foreign_subject(found)
    if problem:
        raise EventError(f"the certificate request cannot be used: {problem}")
    return made


def foreign_subject(request: AddOnRequest) -> str:
    """Why the subject may be another's; empty when it cannot."""
    signer = request.signer
    prefix = addon_user(request.cluster, request.addon, "")
    agent = request.common_name.removeprefix(prefix)
    is_own = request.common_name.startswith(prefix) and bool(agent) and ":" not in agent
    groups = set(addon_groups(request.cluster, request.addon))
    if signer == KUBE_CLIENT_SIGNER:
        if not is_own:
            return f"its common name is {request.common_name}, not {prefix}<agent>"
        if set(request.organizations) - {AUTHENTICATED} != groups:
            return f"its organisations are not {' and '.join(sorted(groups))}"
        return ""
    if not isinstance(signer, str) or not signer or signer.startswith(KUBERNETES_SIGNERS):  # pyright: ignore[reportUnnecessaryIsInstance]  from outside
        return f"its signer is not {KUBE_CLIENT_SIGNER} or one of an add-on"
    names = {request.common_name} if not is_own else set[str]()
    foreign = {
        name for name in names | (request.organizations - groups) if name.startswith(RESERVED)
    }
    return f"it asks for {', '.join(sorted(foreign))}" if foreign else ""
