"""Custom resources with the fields that the project's documents and the Knative Operator's use."""

from knfleet.api.meta import Object
from knfleet.kube.yaml import load_all

REMOTE = """
apiVersion: operator.knative.dev/v1beta1
kind: KnativeServing
metadata: {name: serving-with-kourier, namespace: samples}
spec:
  clusterProfileRef: {name: north, namespace: fleet}
  ingress:
    kourier: {enabled: true}
---
apiVersion: operator.knative.dev/v1beta1
kind: KnativeEventing
metadata: {name: eventing-elsewhere, namespace: samples}
spec:
  clusterProfileRef: {name: north, namespace: fleet}
---
apiVersion: operator.knative.dev/v1beta1
kind: KnativeServing
metadata: {name: serving-in-a-labelled-namespace, namespace: samples}
spec:
  clusterProfileRef: {name: north, namespace: fleet}
  namespaceConfiguration:
    labels: {pod-security.kubernetes.io/enforce: baseline}
    annotations: {example.test/owner: the-platform-people}
---
apiVersion: operator.knative.dev/v1beta1
kind: KnativeServing
metadata: {name: serving-plainly-remote, namespace: samples}
spec:
  clusterProfileRef:
    name: south
    namespace: default
---
apiVersion: operator.knative.dev/v1beta1
kind: KnativeServing
metadata: {name: serving-with-a-version-and-a-class, namespace: samples}
spec:
  version: "1.22"
  clusterProfileRef: {name: east, namespace: fleet}
  config:
    network: {ingress-class: kourier.ingress.networking.knative.dev}
  ingress:
    kourier: {enabled: true}
"""

LOCAL = """
apiVersion: operator.knative.dev/v1beta1
kind: KnativeServing
metadata: {name: nothing-at-all, namespace: samples}
---
apiVersion: operator.knative.dev/v1beta1
kind: KnativeServing
metadata: {name: everything, namespace: samples}
spec:
  version: 1.23.0
  manifests:
  - URL: https://files.example.test/v${VERSION}/core.yaml
  - URL: /manifests/one.yaml,/manifests/more
  additionalManifests:
  - URL: https://files.example.test/more.yaml
  config:
    autoscaler: {stable-window: 90s}
    config-features: {queueproxy.mount-podinfo: allowed}
  registry:
    default: registry.example.test/knative/${NAME}:v1
    override:
      activator/activator: registry.example.test/activator:v2
      QUEUE_SIDECAR_IMAGE: registry.example.test/queue:v2
    imagePullSecrets:
    - name: pull
    - {}
  high-availability: {replicas: 3}
  namespace:
    labels: {team: blue}
    annotations: {owner: blue}
  workloads: &workloads
  - name: activator
    labels: {a: b}
    annotations: {c: d}
    replicas: 2
    nodeSelector: {disk: fast}
    hostNetwork: true
    version: "1"
    volumeMounts: [{name: v, mountPath: /v}]
    topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: zone
      whenUnsatisfiable: ScheduleAnyway
      labelSelector: {matchLabels: {app: activator}}
    tolerations:
    - {key: dedicated, operator: Equal, value: knative, effect: NoSchedule}
    affinity:
      nodeAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
          - matchExpressions: [{key: zone, operator: In, values: [a, b]}]
    resources:
    - container: activator
      requests: {cpu: 300m, memory: 64Mi}
      limits: {cpu: 1, memory: 1Gi}
      claims: [{name: gpu}]
    env:
    - container: activator
      envVars:
      - {name: A, value: b}
      - name: POD
        valueFrom: {fieldRef: {fieldPath: metadata.name}}
    readinessProbes:
    - {container: activator, initialDelaySeconds: 1, timeoutSeconds: 2, periodSeconds: 3,
       successThreshold: 1, failureThreshold: 5}
    livenessProbes:
    - {container: activator, terminationGracePeriodSeconds: 60}
  deployments: *workloads
  resources:
  - container: controller
    requests: {cpu: 100m}
  services:
  - name: autoscaler
    labels: {a: b}
    annotations: {c: d}
    selector: {e: f}
  podDisruptionBudgets:
  - name: activator-pdb
    minAvailable: 50%
  - name: webhook-pdb
    maxUnavailable: 1
    selector: {matchLabels: {app: webhook}}
    unhealthyPodEvictionPolicy: AlwaysAllow
  controller-custom-certs: {type: ConfigMap, name: certs}
  security:
    securityGuard: {enabled: true}
  ingress:
    contour: {enabled: false}
    gateway-api: {enabled: false}
    kourier:
      enabled: true
      service-type: NodePort
      service-load-balancer-ip: 192.0.2.7
      http-port: 30080
      https-port: 30443
      bootstrap-configmap: my-bootstrap
    istio:
      enabled: true
      knative-ingress-gateway:
        selector: {istio: gateway}
        servers:
        - port: {number: 443, protocol: HTTPS, name: https, target_port: 8443}
          bind: 192.0.2.8
          name: outside
          hosts: ["*.example.test"]
          defaultEndpoint: 127.0.0.1:8080
          tls:
            httpsRedirect: false
            mode: MUTUAL
            serverCertificate: /certs/tls.crt
            privateKey: /certs/tls.key
            caCertificates: /certs/ca.crt
            credentialName: tls
            subjectAltNames: [a.example.test]
            verifyCertificateSpki: [c3BraQ==]
            verifyCertificateHash: [aa11]
            minProtocolVersion: 3
            maxProtocolVersion: 4
            cipherSuites: [ECDHE-RSA-AES256-GCM-SHA384]
      knative-local-gateway:
        selector: {istio: local}
        servers: []
---
apiVersion: operator.knative.dev/v1beta1
kind: KnativeServing
metadata: {name: no-ingress, namespace: samples}
spec: {ingress: {}}
---
apiVersion: operator.knative.dev/v1beta1
kind: KnativeEventing
metadata: {name: one-source, namespace: samples}
spec:
  source: {kafka: {enabled: true}}
---
apiVersion: operator.knative.dev/v1beta1
kind: KnativeEventing
metadata: {name: all-sources, namespace: samples}
spec:
  version: latest
  defaultBrokerClass: Kafka
  sinkBindingSelectionMode: inclusion
  source:
    ceph: {enabled: true}
    github: {enabled: true}
    gitlab: {enabled: true}
    kafka: {enabled: true}
    rabbitmq: {enabled: true}
    redis: {enabled: false}
"""

PROFILE = """
apiVersion: multicluster.x-k8s.io/v1alpha1
kind: ClusterProfile
metadata:
  name: north
  namespace: samples
  labels: {x-k8s.io/cluster-manager: by-hand}
spec:
  displayName: The northern cluster
  clusterManager: {name: by-hand}
"""

PROFILE_STATUSES = """
status:
  conditions:
  - type: ControlPlaneHealthy
    status: "True"
    reason: ByHand
    message: Written down by a person
    lastTransitionTime: "2026-05-01T00:00:00Z"
  accessProviders:
  - name: secretreader
    cluster:
      server: https://192.0.2.1:6443
      certificateAuthorityData: Y2VydGlmaWNhdGU=
---
status:
  version: {kubernetes: v1.35.8}
  properties:
  - {name: region.example.test, value: north, lastObservedTime: "2026-05-01T00:00:00Z"}
  conditions:
  - type: Joined
    status: "False"
    reason: Waiting
    message: ""
    observedGeneration: 1
    lastTransitionTime: "2026-05-01T00:00:00Z"
  accessProviders:
  - name: direct
    cluster:
      server: https://north.example.test:6443
      certificate-authority-data: Y2VydGlmaWNhdGU=
      certificate-authority: /etc/ca.crt
      tls-server-name: north
      insecure-skip-tls-verify: false
      proxy-url: http://proxy.example.test:3128
      disable-compression: true
      extensions:
      - name: client.authentication.k8s.io/exec
        extension: {clusterName: north}
      - name: clusterprofiles.multicluster.x-k8s.io/exec/additional-args
        extension: [--verbose, --region=north]
      - name: clusterprofiles.multicluster.x-k8s.io/exec/additional-envs
        extension: {REGION: north}
  credentialProviders:
  - name: direct
    cluster: {server: "https://old.example.test"}
"""

KNATIVE_STATUS: Object = {
    "observedGeneration": 1,
    "version": "1.23.0",
    "manifests": ["/var/run/ko/knative-serving/1.23.0"],
    "annotations": {"a": "b"},
    "conditions": [
        {
            "type": "Ready",
            "status": "False",
            "severity": "Info",
            "reason": "NotReady",
            "message": "Waiting on deployments: webhook",
            "lastTransitionTime": "2026-05-01T00:00:00Z",
        }
    ],
}


def knatives() -> list[Object]:
    """Every sample of KnativeServing and KnativeEventing."""
    return load_all(REMOTE) + load_all(LOCAL)


def profile() -> Object:
    """A ClusterProfile without a status."""
    return load_all(PROFILE)[0]


def profile_statuses() -> list[Object]:
    """Patches that give a ClusterProfile a status."""
    return load_all(PROFILE_STATUSES)
