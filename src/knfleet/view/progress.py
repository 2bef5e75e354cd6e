"""The progress of an installation, with counts, from its conditions."""

from knfleet.api.knative.conditions import (
    DEPLOYMENTS_AVAILABLE,
    INSTALL_SUCCEEDED,
    Conditions,
    find,
)
from knfleet.operator.status.messages import read_waiting
from knfleet.view.fleet_model import InstallProgress

LONGEST = 120
UNDER_WAY = ("Installing", "Uninstalling")


def progress_of(conditions: Conditions) -> InstallProgress | None:
    """What is in progress; None when nothing is."""
    install = find(conditions, INSTALL_SUCCEEDED)
    if install is not None and install.reason == "Uninstalling":
        return InstallProgress(shortened(install.message))
    workloads = find(conditions, DEPLOYMENTS_AVAILABLE)
    if workloads is not None and workloads.status == "False":
        counts = read_waiting(workloads.message)
        if counts is not None:
            return InstallProgress("workloads ready", counts.ready, counts.total, counts.waiting)
    if install is not None and install.reason in UNDER_WAY:
        return InstallProgress(shortened(install.message))
    return None


def shortened(message: str) -> str:
    """The beginning of a message, as one line."""
    text = " ".join(message.split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
