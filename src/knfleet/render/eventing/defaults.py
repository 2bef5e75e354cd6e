"""Eventing's default broker class, and where its bindings work."""

from typing import cast

from knfleet.api.knative.resources import EventingSpec
from knfleet.api.meta import Object
from knfleet.kube.yaml import YamlError, dump_all, load
from knfleet.render.drafts import Draft, as_map, canonical
from knfleet.render.errors import BadField, BadObject, RenderError
from knfleet.render.overrides.pod_templates import containers, put_env

BROKER_CLASS = "MTChannelBasedBroker"
BROKERS = "config-br-defaults"
BROKERS_KEY = "default-br-config"
WEBHOOK = "eventing-webhook"
SELECTION_MODE = "SINK_BINDING_SELECTION_MODE"


def set_broker_class(draft: Draft, spec: EventingSpec) -> None:
    """Write the default broker class, unless the custom resource's own configuration has one."""
    if not draft.named("", "ConfigMap", BROKERS):
        return
    given = spec.config_map(BROKERS).get(BROKERS_KEY, "")
    if "brokerClass:" in given:
        return
    data = draft.section("data")
    text = data.get(BROKERS_KEY)
    if not isinstance(text, str):
        raise BadObject(str(draft), f"has no {BROKERS_KEY}")
    config = broker_config(text, by_user=bool(given))
    default = as_map(config.get("clusterDefault"))
    wanted = spec.default_broker_class or BROKER_CLASS
    if default.get("brokerClass") != wanted:
        config["clusterDefault"] = {**default, "brokerClass": wanted}
        data[BROKERS_KEY] = dump_all([config])


def broker_config(text: str, *, by_user: bool) -> Object:
    """The configuration of default brokers, which is YAML inside a ConfigMap."""
    try:
        config = load(text)
    except YamlError as error:
        raise unreadable(text, str(error), by_user=by_user) from error
    if not isinstance(config, dict):
        raise unreadable(text, "is not a map", by_user=by_user)
    fields = cast("Object", config)
    if not isinstance(fields.get("clusterDefault") or {}, dict):
        raise unreadable(text, "clusterDefault is not a map", by_user=by_user)
    return fields


def unreadable(text: str, problem: str, *, by_user: bool) -> RenderError:
    """The error for a configuration that is not one."""
    if by_user:
        return BadField(f"spec.config.{BROKERS}.{BROKERS_KEY}", text, problem)
    return BadObject(f"ConfigMap {BROKERS}", f"{BROKERS_KEY}: {problem}")


def set_selection_mode(draft: Draft, spec: EventingSpec) -> None:
    """Tell the webhook in which namespaces bindings work."""
    if draft.named("apps", "Deployment", WEBHOOK):
        variable = selection_mode(spec)
        for container in containers(draft):
            put_env(draft, container, variable)


def selection_mode(spec: EventingSpec) -> Object:
    """The variable with the mode: the field, else a workload override, else the default."""
    if spec.sink_binding_selection_mode:
        return {"name": SELECTION_MODE, "value": spec.sink_binding_selection_mode}
    for overrides in (spec.workloads, spec.deployments):
        variables = [
            variable
            for override in overrides
            if override.name == WEBHOOK
            for env in override.env
            if env.container == WEBHOOK
            for variable in env.env_vars
            if variable.get("name") == SELECTION_MODE
            and (variable.get("value") or variable.get("valueFrom"))
        ]
        if variables:
            return canonical(variables[-1])
    return {"name": SELECTION_MODE, "value": "exclusion"}
