"""The deliberate differences between the Knative Operator and knfleet, each with its reason.

`docs/compatibility.md` explains them to people; here each is a pattern for fields of objects, and
the name of a sample that shows it. An entry that its sample does not show fails that sample's test.
"""

from fnmatch import fnmatchcase

from msgspec import Struct

from tests.peers.comparison import Difference, as_text


class Deliberate(Struct, frozen=True, kw_only=True):
    """A difference that is there on purpose."""

    object: str
    """Pattern for the object: kind, group, namespace and name."""
    path: str
    """Pattern for the field."""
    ours: str = "*"
    theirs: str = "*"
    """Patterns for the values."""
    reason: str
    on_page: str
    """Words on the page by which its line is found."""
    shown_by: str

    def covers(self, difference: Difference) -> bool:
        """Whether it is about a difference that was found."""
        return (
            fnmatchcase(difference.object, self.object)
            and fnmatchcase(difference.path, self.path)
            and fnmatchcase(as_text(difference.ours), self.ours)
            and fnmatchcase(as_text(difference.theirs), self.theirs)
        )


NAMESPACES = (
    Deliberate(
        object="ConfigMap tenant/kourier-bootstrap",
        path="data.envoy-bootstrap.yaml.*",
        ours="*tenant",
        theirs="*knative-serving",
        reason="Envoy would look for Kourier's controller in a namespace that is not there.",
        on_page="the address of Kourier's controller in Envoy's bootstrap",
        shown_by="serving-kourier-elsewhere",
    ),
    Deliberate(
        object="ConfigMap tenant/config-br-defaults",
        path="data.default-br-config.clusterDefault.namespace",
        ours="tenant",
        theirs="knative-eventing",
        reason="The default broker's configuration is a ConfigMap that has moved.",
        on_page="the default broker's configuration",
        shown_by="eventing-elsewhere",
    ),
    Deliberate(
        object="ValidatingWebhookConfiguration.* /config.webhook.eventing.knative.dev",
        path="webhooks.*.namespaceSelector.matchExpressions.0.values.0",
        ours="tenant",
        theirs="knative-eventing",
        reason="The webhook would check ConfigMaps of a namespace that is not Eventing's.",
        on_page="`namespaceSelector` of webhooks",
        shown_by="eventing-elsewhere",
    ),
    Deliberate(
        object="MutatingWebhookConfiguration.* /pods.defaulting.webhook.kafka.eventing.*",
        path="webhooks.*.namespaceSelector.matchLabels.kubernetes.io/metadata.name",
        ours="tenant",
        theirs="knative-eventing",
        reason="The webhook would never see the pods of Kafka's data plane.",
        on_page="`namespaceSelector` of webhooks",
        shown_by="eventing-kafka-elsewhere",
    ),
    Deliberate(
        object="Deployment.apps tenant/kafka-controller",
        path="spec.template.spec.containers.controller.env.*_NAMESPACE.value",
        ours="tenant",
        theirs="knative-eventing",
        reason="Kafka's controller would look for its data plane where it is not.",
        on_page="`…NAMESPACE` variables of Kafka's controller",
        shown_by="eventing-kafka-elsewhere",
    ),
    Deliberate(
        object="Certificate.cert-manager.io tenant/*",
        path="spec.dnsNames.?",
        ours="*.tenant.svc*",
        theirs="*.knative-eventing.svc*",
        reason="The certificates would be for addresses that nobody has.",
        on_page="DNS names of Eventing's certificates",
        shown_by="eventing-encrypted-elsewhere",
    ),
    Deliberate(
        object="IngressClass.networking.k8s.io /more",
        path="metadata.ownerReferences",
        ours="(absent)",
        reason="An owner in a namespace cannot own what is in none.",
        on_page="cluster-scoped kinds outside a fixed list",
        shown_by="eventing-more-objects",
    ),
    Deliberate(
        object="outcome",
        path="problem",
        ours="(absent)",
        theirs="name is required",
        reason="A List is nothing but the objects in it.",
        on_page="`kind: List` in a manifest",
        shown_by="eventing-list-of-objects",
    ),
    Deliberate(
        object="outcome",
        path="problem",
        ours="(absent)",
        theirs="panic: interface conversion: interface {} is nil, not []interface {}",
        reason="A binding may have no subjects.",
        on_page="a binding without subjects",
        shown_by="serving-binding-of-nobody",
    ),
    Deliberate(
        object="Namespace /knative-serving",
        path="metadata.annotations",
        ours='{"note":"b"}',
        theirs="(absent)",
        reason="The field that documents name is accepted beside the one that there is.",
        on_page="`spec.namespaceConfiguration`",
        shown_by="serving-namespace-configuration",
    ),
    Deliberate(
        object="Namespace /knative-serving",
        path="metadata.labels.team",
        ours="a",
        theirs="(absent)",
        reason="The field that documents name is accepted beside the one that there is.",
        on_page="`spec.namespaceConfiguration`",
        shown_by="serving-namespace-configuration",
    ),
)

REPLICAS = (
    Deliberate(
        object="HorizontalPodAutoscaler.autoscaling knative-eventing/broker-*-hpa",
        path="spec.???Replicas",
        reason="A number of a workload's own counts for brokers as for all others.",
        on_page="`replicas` of `mt-broker-ingress`, `mt-broker-filter`",
        shown_by="eventing-brokers-with-numbers-of-their-own",
    ),
    Deliberate(
        object="Deployment.apps */scaled",
        path="spec.replicas",
        ours="1",
        theirs="2",
        reason="What an autoscaler scales, whatever it is called, is left to it.",
        on_page="workloads that are autoscaled",
        shown_by="serving-more-workloads",
    ),
    Deliberate(
        object="HorizontalPodAutoscaler.autoscaling */scaler-without-least",
        path="spec.maxReplicas",
        ours="5",
        theirs="6",
        reason="An absent least number is one, so that raising it to two adds one.",
        on_page="an autoscaler without `minReplicas`",
        shown_by="serving-more-workloads",
    ),
)

IMAGES = (
    Deliberate(
        object="outcome",
        path="problem",
        ours="*spec.registry.default*has no ${NAME} in it*",
        theirs="(absent)",
        reason="No installation works in which all images are the same one.",
        on_page="`default` without `${NAME}`",
        shown_by="eventing-images-all-the-same",
    ),
    Deliberate(
        object="*",
        path="spec.template.spec.initContainers.first.image",
        ours="registry.example.org/mirror/thing:v1",
        reason="An image that is not mirrored cannot be pulled where only the mirror is.",
        on_page="init containers, CronJobs",
        shown_by="serving-more-workloads",
    ),
    Deliberate(
        object="*",
        path="spec.template.spec.imagePullSecrets",
        ours='[[]{"name":"mine"},{"name":"more"}]',
        theirs='[[]{"name":"mine"},{"name":"mine"},{"name":"more"}]',
        reason="The same entry twice in a list is refused by server-side apply.",
        on_page="pull secrets that are there already",
        shown_by="serving-more-workloads",
    ),
    Deliberate(
        object="ConfigMap */config-deployment",
        path="data.queue-sidecar-image",
        ours="registry.example.org/queue:1",
        reason="An image that stands in a ConfigMap comes from the registry like all others.",
        on_page="images in ConfigMaps",
        shown_by="serving-images-in-config-maps",
    ),
    Deliberate(
        object="outcome",
        path="problem",
        ours="(absent)",
        theirs="map: map[[]] does not contain declared merge key: name",
        reason="A secret without a name is none, and no reason to install nothing.",
        on_page="a pull secret without a name",
        shown_by="eventing-pull-secret-without-name",
    ),
)

CONFIGURATION = (
    Deliberate(
        object="ConfigMap */default-ch-webhook",
        path="data.default-ch-config",
        theirs="cut*",
        reason="Seven characters are cut off a name, whatever they are: an oversight.",
        on_page="the first seven characters of the ConfigMap's name are cut",
        shown_by="eventing-configuration-by-a-cut-name",
    ),
    Deliberate(
        object="outcome",
        path="problem",
        ours="(absent)",
        theirs="panic: runtime error: slice bounds out of range*",
        reason="A ConfigMap may have a short name.",
        on_page="ConfigMaps with names of fewer than seven characters",
        shown_by="serving-config-map-with-a-short-name",
    ),
)

WORKLOADS = (
    Deliberate(
        object="Deployment.apps */controller",
        path="spec.template.spec.containers.controller.livenessProbe",
        theirs="(absent)",
        reason="A delay of zero is a delay, and no wish to be rid of the probe.",
        on_page="zero in a probe override",
        shown_by="serving-probes",
    ),
    Deliberate(
        object="outcome",
        path="problem",
        ours="(absent)",
        theirs="*livenessProbe: Required value: must specify a handler type*",
        reason="An override that cannot work must not stop everything else.",
        on_page="a probe override for a container without that probe",
        shown_by="serving-probe-without-handler",
    ),
    Deliberate(
        object="Job.batch */kafka-controller-post-install-eventing-1.23.0",
        path="*metadata.labels.team",
        ours="a",
        theirs="(absent)",
        reason="A Job with a name can be overridden like one with a generated name.",
        on_page="DaemonSets, CronJobs and Jobs with a fixed name",
        shown_by="eventing-workloads",
    ),
    Deliberate(
        object="*/more-*",
        path="*metadata.labels.team",
        ours="a",
        theirs="(absent)",
        reason="Every kind of workload can be overridden.",
        on_page="DaemonSets, CronJobs and Jobs with a fixed name",
        shown_by="serving-more-workloads",
    ),
    Deliberate(
        object="outcome",
        path="problem",
        ours="(absent)",
        theirs='*no kind "Service" is registered*',
        reason="A Knative Service is no Service of the core, and must not stop everything.",
        on_page="`services` overrides where a manifest has a Knative Service",
        shown_by="serving-knative-service",
    ),
    Deliberate(
        object="outcome",
        path="problem",
        ours="(absent)",
        theirs="*.rules accessor error: <nil> is of the type <nil>*",
        reason="The rules belong to the aggregation controller, also while there are none.",
        on_page="rules of aggregated ClusterRoles",
        shown_by="eventing-role-without-rules",
    ),
)

SERVING = (
    Deliberate(
        object="Gateway.networking.istio.io */knative-ingress-gateway",
        path="spec.servers.*.tls.mode",
        ours="PASSTHROUGH",
        theirs="(absent)",
        reason="It means the same, and is what the user wrote.",
        on_page="Istio's TLS mode `PASSTHROUGH`",
        shown_by="serving-istio-gateways",
    ),
    Deliberate(
        object="Deployment.apps */controller",
        path="spec.template.spec.containers.controller.env",
        theirs="*",
        reason="The same variable twice in a list is refused by server-side apply.",
        on_page="`SSL_CERT_DIR` that a workload override sets too",
        shown_by="serving-certificates-in-secret",
    ),
)

EVENTING = (
    Deliberate(
        object="ConfigMap */config-br-defaults",
        path="data.default-br-config (form)",
        reason="A text that says what it should is left as it is.",
        on_page="written anew on every pass, unknown fields and comments are lost",
        shown_by="eventing-defaults",
    ),
    Deliberate(
        object="ConfigMap */config-br-defaults",
        path="data.default-br-config.namespaceDefaults.mine.brokerClass_",
        ours="none",
        theirs="(absent)",
        reason="What a user wrote is not ours to remove.",
        on_page="written anew on every pass, unknown fields and comments are lost",
        shown_by="eventing-broker-config-without-class",
    ),
    Deliberate(
        object="outcome",
        path="problem",
        ours="(absent)",
        theirs="panic: runtime error: invalid memory address or nil pointer dereference*",
        reason="A configuration without a default can be given one.",
        on_page="`default-br-config` without `clusterDefault`",
        shown_by="eventing-broker-config-without-default",
    ),
    Deliberate(
        object="Certificate.cert-manager.io knative-eventing/*",
        path="",
        ours="(absent)",
        reason="The configuration that is installed decides, and it says no encryption.",
        on_page="`config.features` and `config.config-features` both given",
        shown_by="eventing-encryption-said-twice",
    ),
    Deliberate(
        object="Deployment.apps */pingsource-mt-adapter",
        path="spec.template.spec.containers.dispatcher.env (order)",
        reason="One of the variables that Eventing's controller writes is unknown to them.",
        on_page="the ping source's `K_OBSERVABILITY_CONFIG`",
        shown_by="eventing-defaults",
    ),
)

RELEASES = (
    Deliberate(
        object="outcome",
        path="problem",
        ours="*the objects belong to knative-eventing, not to knative-serving*",
        theirs="webhook deployment not found in manifest",
        reason="It is refused before anything is installed.",
        on_page="manifests of the other component in `spec.manifests`",
        shown_by="serving-own-manifests-of-eventing",
    ),
    Deliberate(
        object="outcome",
        path="problem",
        ours="*more.yaml: there is no such file or folder",
        theirs="the manifests of the target version  are not available to this release",
        reason="The file is what is missing, not the release.",
        on_page="a failed additional manifest",
        shown_by="serving-more-that-is-not-there",
    ),
)

DELIBERATE: tuple[Deliberate, ...] = (
    *NAMESPACES,
    *REPLICAS,
    *IMAGES,
    *CONFIGURATION,
    *WORKLOADS,
    *SERVING,
    *EVENTING,
    *RELEASES,
)
