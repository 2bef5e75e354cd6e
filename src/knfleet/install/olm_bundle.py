"""The operator as a bundle of the Operator Lifecycle Manager: what `knfleet manifests` prints.

OLM makes the ServiceAccount, its roles and the Deployment from the ClusterServiceVersion; the CRDs
and other objects are files beside it. `python -m knfleet.install.olm_bundle FOLDER IMAGE URL`
writes the folder.
"""

import base64
import sys
from pathlib import Path

import msgspec

from knfleet import __version__
from knfleet.api.crds.generator import definitions
from knfleet.api.knative.resources import EVENTINGS, GROUP, SERVINGS
from knfleet.api.meta import Object
from knfleet.install import operator_manifests
from knfleet.install.operator_options import (
    MINIMUM_KUBERNETES,
    SEMANTIC_VERSION,
    OperatorInstall,
)
from knfleet.kube.yaml import dump_all
from knfleet.operator import rights

PACKAGE, CHANNEL = "knfleet", "stable"
NAMESPACE_OF_OLM = ""
MEDIA_TYPES = {
    "mediatype.v1": "registry+v1",
    "manifests.v1": "manifests/",
    "metadata.v1": "metadata/",
    "package.v1": PACKAGE,
    "channels.v1": CHANNEL,
    "channel.default.v1": CHANNEL,
}
"""What a bundle says of itself, in annotations and as labels of its image."""
DESCRIPTIONS = {
    SERVINGS.kind: "An installation of Knative Serving on this cluster or another one",
    EVENTINGS.kind: "An installation of Knative Eventing on this cluster or another one",
}
ABOUT = """\
Installs, upgrades, repairs and removes Knative Serving and Eventing as the Knative Operator does,
on this cluster and, by ClusterProfiles of the Cluster Inventory API, on any number of others.

Delete the custom resources before the operator, while it can still remove Knative.
"""


def bundle(image: str, repository: str) -> dict[str, str]:
    """The files of the bundle, by path."""
    install = OperatorInstall(namespace=NAMESPACE_OF_OLM, image=image)
    beside = [operator_manifests.service(install), *operator_manifests.settings(install)]
    annotations = {f"operators.operatorframework.io.bundle.{name}": value
                   for name, value in MEDIA_TYPES.items()}  # fmt: skip
    files = {f"{PACKAGE}.clusterserviceversion": cluster_service_version(install, repository)}
    files |= {each["metadata"]["name"]: each for each in owned_definitions()}
    files |= {f"{each['metadata']['name']}.{each['kind'].lower()}": each for each in beside}
    return {
        **{f"manifests/{name}.yaml": dump_all([placeless(each)]) for name, each in files.items()},
        "metadata/annotations.yaml": dump_all([{"annotations": annotations}]),
        "bundle.Containerfile": recipe(annotations),
    }


def owned_definitions() -> list[Object]:
    """The CRDs of the operator alone: that of ClusterProfile belongs to others as well."""
    return [each for each in definitions() if each["spec"]["group"] == GROUP]


def placeless(manifest: Object) -> Object:
    """A manifest without namespace: OLM chooses it."""
    meta = {name: value for name, value in manifest["metadata"].items() if name != "namespace"}
    return {**manifest, "metadata": meta}


def recipe(annotations: dict[str, str]) -> str:
    """How the bundle becomes an image."""
    labels = "".join(f"LABEL {name}={value}\n" for name, value in annotations.items())
    return f"FROM scratch\n{labels}COPY manifests /manifests/\nCOPY metadata /metadata/\n"


def cluster_service_version(install: OperatorInstall, repository: str) -> Object:
    """What OLM installs, and what catalogs show."""
    workload = operator_manifests.deployment(install)
    return {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": f"{PACKAGE}.v{SEMANTIC_VERSION}",
            "annotations": {
                "alm-examples": examples(),
                "capabilities": "Full Lifecycle",
                "categories": "Application Runtime, Networking",
                "containerImage": install.image,
                "description": "Runs Knative on any number of clusters",
                "repository": repository,
                "support": "knfleet",
            },
        },
        "spec": {
            "displayName": "knfleet",
            "description": ABOUT,
            "version": SEMANTIC_VERSION,
            "minKubeVersion": MINIMUM_KUBERNETES.removeprefix("v"),
            "maturity": "alpha",
            "keywords": ["knative", "serverless", "multicluster"],
            "icon": [{"base64data": icon(), "mediatype": "image/svg+xml"}],
            "links": [{"name": "Documentation", "url": f"{repository}/tree/v{__version__}/docs"}],
            "provider": {"name": "knfleet", "url": repository},
            "customresourcedefinitions": {"owned": [owned(each) for each in owned_definitions()]},
            "install": {
                "strategy": "deployment",
                "spec": {
                    "deployments": [
                        {
                            "name": workload["metadata"]["name"],
                            "label": workload["metadata"]["labels"],
                            "spec": workload["spec"],
                        }
                    ],
                    "clusterPermissions": [
                        permissions([*rights.hub_rules(), *rights.local_rules()])
                    ],
                    "permissions": [permissions(rights.namespace_rules())],
                },
            },
            "installModes": [
                {"type": mode, "supported": mode == "AllNamespaces"}
                for mode in ("OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces")
            ],
            "relatedImages": [{"name": "operator", "image": install.image}],
        },
    }


def permissions(rules: list[Object]) -> Object:
    """Rights of the operator's account."""
    return {"serviceAccountName": operator_manifests.NAME, "rules": rules}


def owned(definition: Object) -> Object:
    """A CRD as the ClusterServiceVersion lists it."""
    names = definition["spec"]["names"]
    (version,) = [each["name"] for each in definition["spec"]["versions"] if each["storage"]]
    return {
        "name": definition["metadata"]["name"],
        "kind": names["kind"],
        "version": version,
        "displayName": names["kind"],
        "description": DESCRIPTIONS[names["kind"]],
    }


def examples() -> str:
    """A small custom resource of each kind, as catalogs offer them."""
    found = [
        {
            "apiVersion": each.api_version,
            "kind": each.kind,
            "metadata": {"name": name, "namespace": name},
            "spec": {},
        }
        for each, name in ((SERVINGS, "knative-serving"), (EVENTINGS, "knative-eventing"))
    ]
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode()


def icon() -> str:
    """The picture in catalogs: that of the dashboard."""
    picture = Path(__file__).parents[1] / "web" / "static" / "icon.svg"
    return base64.b64encode(picture.read_bytes()).decode()


def main() -> None:
    """Write the files."""
    folder, image, repository = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    for name, text in bundle(image, repository).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
