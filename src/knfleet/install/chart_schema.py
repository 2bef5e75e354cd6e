"""The values that the chart takes, as a JSON schema: Helm refuses others before it installs."""

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
ANYTHING: Schema = {"type": ["object", "null"]}
TEXTS: Schema = {"type": ["array", "null"], "items": TEXT}
LABELS: Schema = {"type": ["object", "null"], "additionalProperties": TEXT}
OBJECTS: Schema = {"type": ["array", "null"], "items": {"type": "object"}}
DURATION: Schema = {"type": "string", "pattern": r"^(([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+)?$"}
COUNT: Schema = {"type": "integer", "minimum": 1}
COUNT_OR_SHARE: Schema = {"type": ["integer", "string"], "pattern": "^[0-9]+%$", "minimum": 0}


def fields(required: tuple[str, ...] = (), /, **known: Schema) -> Schema:
    """An object that has these fields and no others."""
    found: Schema = {"type": "object", "properties": known, "additionalProperties": False}
    return found | ({"required": list(required)} if required else {})


PLUGIN = fields(
    ("name", "image"),
    name=TEXT,
    image=TEXT,
    mountPath=TEXT,
    pullPolicy={"enum": ["Always", "IfNotPresent", "Never", ""]},
)
MULTICLUSTER = fields(
    enabled=FLAG,
    accessProvidersConfig={
        "type": ["object", "null"],
        "properties": {"providers": {"type": "array", "items": {"type": "object"}}},
    },
    plugins={"type": ["array", "null"], "items": PLUGIN},
    remoteDeploymentsPollInterval=DURATION,
    replicas=COUNT,
    secretNamespaces=TEXTS,
    checkProfileUse=FLAG,
)
OPERATOR = fields(
    image=TEXT,
    tag=TEXT,
    annotations=LABELS,
    podAnnotations=LABELS,
    affinity=ANYTHING,
    tolerations=OBJECTS,
    nodeSelector=LABELS,
    topologySpreadConstraints=OBJECTS,
    priorityClassName=TEXT,
    imagePullSecrets=OBJECTS,
    securityContext=ANYTHING,
    containerSecurityContext=ANYTHING,
    resources=ANYTHING,
    env=OBJECTS,
)
DASHBOARD = fields(
    enabled=FLAG,
    tlsSecret=TEXT,
    insecureHttp=FLAG,
    names=TEXTS,
    actions=FLAG,
    env=OBJECTS,
    resources=ANYTHING,
)
NETWORK_POLICY = {"enabled": FLAG, "from": OBJECTS}
VALUES = fields(
    multicluster=MULTICLUSTER,
    local_installs=FLAG,
    crds=fields(install=FLAG),
    knative_operator=OPERATOR,
    networkPolicy=fields(**NETWORK_POLICY),
    podDisruptionBudget=fields(enabled=FLAG, maxUnavailable=COUNT_OR_SHARE),
    podMonitor=fields(enabled=FLAG, interval=DURATION, labels=LABELS),
    prometheusRule=fields(enabled=FLAG, labels=LABELS),
    dashboard=DASHBOARD,
    operator_webhook=ANYTHING,
    kubernetes_min_version=TEXT,
    extraObjects={"type": ["array", "null"]},
)
ANY_CHART: dict[str, Schema] = {"extraObjects": {"type": ["array", "null"]}, "global": {}}
SCHEMA: Schema = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Values of the chart knfleet",
    **fields(knative_operator=VALUES, **ANY_CHART),
}
