"""ClusterRoles whose rules the cluster gathers."""

from knfleet.render.drafts import Draft


def leave_rules(draft: Draft) -> None:
    """Say nothing of the rules of an aggregated ClusterRole.

    Its rules belong to the aggregation controller; applying any, even none, would take them away.
    """
    if draft.kind == "ClusterRole" and draft.manifest.get("aggregationRule"):
        draft.manifest.pop("rules", None)
