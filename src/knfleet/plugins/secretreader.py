"""The plugin `secretreader`: a token from a Secret that is named like the cluster.

Of the cluster's configuration it takes `clusterName` (the Secret's name) and, beyond the reference
plugin, `namespace`. A cluster without any configuration, when knfleet says for which ClusterProfile
it asks, is looked for under the profile's name: first here, then as `<name>-credentials` beside it.
"""

from knfleet.plugins import hub
from knfleet.plugins.execcredential import Asked, Here, Json, PluginError, serve, with_token

NAME = "secretreader"
KEY = "token"


def credential(question: Asked, here: Here) -> Json:
    """The token for the cluster that is asked for."""
    if question.config is None:
        return of_the_profile(question, here)
    name = question.text("clusterName", required=True)
    cluster = here.hub()
    namespace = question.text("namespace") or cluster.namespace
    found = hub.value(cluster, namespace, name, KEY)
    return with_token(found.strip(), f"secret {namespace}/{name}")


def of_the_profile(question: Asked, here: Here) -> Json:
    """The token for a ClusterProfile that says nothing to its plugin."""
    if question.profile is None:
        raise PluginError(
            "missing ExecCredential.Spec.Cluster.Config; give the cluster the extension "
            "client.authentication.k8s.io/exec with a clusterName"
        )
    namespace, name = question.profile
    cluster = here.hub()
    places = ((cluster.namespace, name), (namespace, f"{name}-credentials"))
    for at, secret in places:
        if (data := cluster.secret(at, secret)) is not None:
            found = hub.text_in(data, f"{at}/{secret}", KEY)
            return with_token(found.strip(), f"secret {at}/{secret}")
    looked = " and ".join(f"{at}/{secret}" for at, secret in places)
    raise PluginError(f"failed to get secret for ClusterProfile {namespace}/{name}: no {looked}")


def main() -> None:
    """Answer on standard output."""
    serve(NAME, credential, hub.find)


if __name__ == "__main__":
    main()
