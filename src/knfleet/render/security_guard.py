"""The security guard."""

from knfleet.render.drafts import Draft


def allow_pod_info(draft: Draft) -> None:
    """Let queue proxies mount what the guard wants to know of their pods."""
    if draft.named("", "ConfigMap", "config-features"):
        draft.section("data")["queueproxy.mount-podinfo"] = "allowed"
