"""The plugin `secretreader`: a token from a Secret that is named like the cluster.

Of the cluster's configuration it takes `clusterName` (the Secret's name) and, beyond the reference
plugin, `namespace`. A cluster without any configuration, when knfleet says for which ClusterProfile
it asks, is looked for under the profile's name: `<name>`, else `<name>-credentials`.
"""

from knfleet.plugins import hub_api
from knfleet.plugins.execcredential import (
    Json,
    PluginEnvironment,
    PluginError,
    PluginRequest,
    serve,
    with_token,
)

NAME = "secretreader"
KEY = "token"


def credential(question: PluginRequest, here: PluginEnvironment) -> Json:
    """The token for the cluster that is asked for."""
    found, where = hub_api.value(question, here, names(question), KEY)
    return with_token(found.strip(), where)


def names(question: PluginRequest) -> tuple[str, ...]:
    """What the Secret may be called."""
    if question.config is not None:
        return (question.text("clusterName", required=True),)
    if question.profile is None:
        raise PluginError(
            "missing ExecCredential.Spec.Cluster.Config; give the cluster the extension "
            "client.authentication.k8s.io/exec with a clusterName"
        )
    _, name = question.profile
    return name, f"{name}-credentials"


def main() -> None:
    """Answer on standard output."""
    serve(NAME, credential, hub_api.find)


if __name__ == "__main__":
    main()
