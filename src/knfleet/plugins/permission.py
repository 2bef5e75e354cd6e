"""Which namespaces' Secrets are read for a ClusterProfile. Pure.

The author of a profile chooses both the Secret and the server that its content is sent to. So a
profile gets Secrets of its own namespace; those of others need the operator's consent, which is a
variable of the environment that no profile can set.
"""

from collections.abc import Mapping

from knfleet.plugins.execcredential import PluginError, PluginRequest

VARIABLE = "KNFLEET_SECRET_NAMESPACES"
"""Namespaces whose Secrets every profile may name, separated by commas; `*` stands for all."""


def namespaces(question: PluginRequest, environ: Mapping[str, str], own: str) -> tuple[str, ...]:
    """Where to look for a Secret, in this order; raises when that is not permitted.

    Without a profile there is nothing to compare with, and the plugin's own namespace counts.
    """
    home = question.profile[0] if question.profile else own
    listed = {each.strip() for each in environ.get(VARIABLE, "").split(",")}
    named = question.text("namespace")
    wanted = dict.fromkeys([named] if named else [home, own])
    found = tuple(each for each in wanted if each == home or listed & {each, "*"})
    if not found:
        whom = (
            f"ClusterProfiles of namespace {home}"
            if question.profile
            else "a caller without a ClusterProfile"
        )
        raise PluginError(
            f"Secrets of namespace {named} are not read for {whom}; move the Secret to namespace "
            f"{home}, or {consent(named)}"
        )
    return found


def consent(namespace: str) -> str:
    """What to do so that Secrets of a namespace are read for all profiles."""
    return f"list {namespace} in {VARIABLE} in the env of the provider's execConfig"
