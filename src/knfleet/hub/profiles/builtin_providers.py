"""Access to clusters that joined by themselves, for a hub that is given no provider file."""

import sys
from collections.abc import Mapping
from pathlib import Path

from knfleet.clusters.provider_file import Provider, ProviderFile
from knfleet.hub.profiles.cluster_profile import PROVIDER
from knfleet.kube.auth.kubeconfig_entries import ExecBody, ExecEnvVar

MODULE = "knfleet.plugins.secretreader"


class BuiltInProviders(ProviderFile):
    """Our own `secretreader`, under the name that our profiles offer; it never changes."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__(Path("built-in providers"))
        plugin = ExecBody(
            command=sys.executable,
            args=("-m", MODULE),
            env=tuple(ExecEnvVar(name, value) for name, value in environment.items()),
            api_version="client.authentication.k8s.io/v1",
            provide_cluster_info=True,
            interactive_mode="Never",
        )
        self.providers = (Provider(PROVIDER, plugin),)

    def load(self) -> None:
        """There is nothing to read."""

    def reload_if_changed(self) -> None:
        """There is nothing to follow."""
