"""What a cluster needs to call the hub's webhooks: a Service, and a configuration for each kind.

Pure. The CA is not part of it: the hub puts that into the configurations while it runs.
"""

from knfleet.api.addon.clustermanagementaddon import CLUSTER_ADDONS
from knfleet.api.addon.managedclusteraddon import ADDONS
from knfleet.api.core import SERVICES, VALIDATING_WEBHOOKS
from knfleet.api.meta import Object
from knfleet.api.operator import CLUSTER_MANAGER, WEBHOOK_SERVICE
from knfleet.api.work.manifestwork import WORKS

PORT = 9443
"""Where the hub's pods listen."""
SECRET = "knfleet-webhook-certificates"  # noqa: S105  a name

WORK_PATH = "/validate/manifestworks"
WORK_VALIDATION = f"manifestworkvalidators.admission.{WORKS.group}"
"""The name that Open Cluster Management's has: where that is left over, ours replaces it."""
CONFIGURATIONS = (WORK_VALIDATION,)
"""Names of the validating webhook configurations that the hub keeps its CA in."""
DEFINITIONS = tuple(f"{each.plural}.{each.group}" for each in (CLUSTER_ADDONS, ADDONS))
"""Names of the CRDs between whose versions the hub converts."""
TIMEOUT_SECONDS = 5


def service(namespace: str) -> Object:
    """The Service by which API servers reach the hub's pods."""
    return {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": {"name": WEBHOOK_SERVICE, "namespace": namespace},
        "spec": {
            "selector": {"app": CLUSTER_MANAGER},
            "ports": [{"name": "webhook", "port": 443, "targetPort": PORT}],
        },
    }


def work_validation(namespace: str) -> Object:
    """Asks the hub about new and changed ManifestWorks; without an answer they are allowed."""
    rule: Object = {
        "apiGroups": [WORKS.group],
        "apiVersions": [WORKS.version],
        "operations": ["CREATE", "UPDATE"],
        "resources": [WORKS.plural],
        "scope": "Namespaced",
    }
    return {
        "apiVersion": VALIDATING_WEBHOOKS.api_version,
        "kind": VALIDATING_WEBHOOKS.kind,
        "metadata": {"name": WORK_VALIDATION},
        "webhooks": [
            {
                "name": WORK_VALIDATION,
                "admissionReviewVersions": ["v1"],
                "clientConfig": {
                    "service": {"namespace": namespace, "name": WEBHOOK_SERVICE, "path": WORK_PATH}
                },
                "failurePolicy": "Ignore",
                # Changes of finalizers and labels, which agents make all the time, are not asked.
                "matchConditions": [
                    {
                        "name": "spec-changed",
                        "expression": "oldObject == null || object.spec != oldObject.spec",
                    }
                ],
                "rules": [rule],
                "sideEffects": "None",
                "timeoutSeconds": TIMEOUT_SECONDS,
            }
        ],
    }


def webhook_objects(namespace: str) -> list[Object]:
    """Everything that `init` applies for webhooks."""
    return [service(namespace), work_validation(namespace)]
