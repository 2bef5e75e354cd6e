"""Random edits of custom resources: what people change, in any order, one on top of the other."""

import copy
from collections.abc import Callable
from random import Random
from typing import Any

Spec = dict[str, Any]
Edit = Callable[[Random, Spec], None]

SERVING_DEPLOYMENTS = ("controller", "activator", "autoscaler", "webhook")
EVENTING_DEPLOYMENTS = ("eventing-controller", "eventing-webhook", "imc-controller")
ENTRIES = {
    "features": {"multi-container": ("enabled", "disabled"), "tag-header": ("a", "b")},
    "network": {"ingress-class": ("x", "y"), "domain-template": ("{{.Name}}", "{{.Domain}}")},
    "config-autoscaler": {"stable-window": ("60s", "90s"), "max-scale": ("3", "7")},
    "logging": {"loglevel.controller": ("debug", "info")},
}


def listed(spec: Spec, section: str, name: str) -> Spec:
    """The entry of a name in one of the lists of overrides."""
    entries: list[Spec] = spec.setdefault(section, [])
    found = next((each for each in entries if each["name"] == name), None)
    if found is None:
        found = {"name": name}
        entries.append(found)
    return found


def config(random: Random, spec: Spec) -> None:
    """Write or drop an entry of a ConfigMap."""
    name = random.choice(sorted(ENTRIES))
    key = random.choice(sorted(ENTRIES[name]))
    entries: Spec = spec.setdefault("config", {}).setdefault(name, {})
    if key in entries and random.random() < 0.3:
        del entries[key]
    else:
        entries[key] = random.choice(
            [each for each in ENTRIES[name][key] if each != entries.get(key)]
        )


def high_availability(random: Random, spec: Spec) -> None:
    """Run more pods, or as many as the release says."""
    if "high-availability" in spec and random.random() < 0.3:
        del spec["high-availability"]
    else:
        before = spec.get("high-availability", {}).get("replicas", 1)
        spec["high-availability"] = {"replicas": random.choice([1 + before, 2 + before])}


def registry(random: Random, spec: Spec) -> None:
    """Take images from elsewhere."""
    match random.randrange(4):
        case 0:
            spec["registry"] = {"default": f"mirror.example/{random.randrange(9)}/${{NAME}}:v1"}
        case 1:
            override = {"controller": f"mirror.example/controller:{random.randrange(99)}"}
            spec.setdefault("registry", {}).setdefault("override", {}).update(override)
        case 2:
            name = f"pull-{random.randrange(9)}"
            spec.setdefault("registry", {})["imagePullSecrets"] = [{"name": name}]
        case _:
            spec.pop("registry", None)


def services(random: Random, spec: Spec) -> None:
    """Mark a Service."""
    name = random.choice(["webhook", "controller", "eventing-webhook", "activator-service"])
    entry = listed(spec, "services", name)
    section = random.choice(["labels", "annotations", "selector"])
    entry.setdefault(section, {})[f"example.com/{random.choice('abc')}"] = str(random.randrange(99))


def budgets(random: Random, spec: Spec) -> None:
    """Change how many pods must stay."""
    name = random.choice(["activator-pdb", "webhook-pdb", "eventing-webhook"])
    listed(spec, "podDisruptionBudgets", name)["minAvailable"] = random.choice(["50%", "70%", 1, 2])


def namespace(random: Random, spec: Spec) -> None:
    """Mark the Namespace."""
    section: Spec = spec.setdefault("namespace", {}).setdefault("labels", {})
    section[f"team-{random.choice('ab')}"] = str(random.randrange(99))


def kourier(random: Random, spec: Spec) -> None:
    """Install another ingress, or change its Service."""
    if random.random() < 0.4:
        spec["ingress"] = {} if spec.get("ingress") else {"kourier": {"enabled": True}}
    else:
        kind = random.choice(["ClusterIP", "NodePort", "LoadBalancer"])
        spec["ingress"] = {"kourier": {"enabled": True, "service-type": kind}}


def release(random: Random, spec: Spec) -> None:
    """Go to the release before, or after."""
    spec["version"] = "1.22" if spec["version"] != "1.22" else "1.23"


def workload(*names: str) -> Edit:
    """An edit that overrides something of a Deployment."""

    def edit(random: Random, spec: Spec) -> None:
        name = random.choice(names)
        entry = listed(spec, random.choice(["deployments", "workloads"]), name)
        number = random.randrange(99)
        changes: list[Spec] = [
            {"replicas": 1 + number % 4},
            {"labels": {"example.com/team": f"t{number}"}},
            {"annotations": {"example.com/note": f"n{number}"}},
            {"nodeSelector": {"zone": f"z{number}"}},
            {"tolerations": [{"key": f"k{number}", "operator": "Exists", "effect": "NoSchedule"}]},
            {"env": [{"container": name, "envVars": [{"name": "EXTRA", "value": f"v{number}"}]}]},
            {"resources": [{"container": name, "limits": {"cpu": f"{number + 300}m"}}]},
            {"hostNetwork": number % 2 == 0},
        ]
        entry.update(random.choice(changes))

    return edit


def forget(random: Random, spec: Spec) -> None:
    """Drop a whole section again."""
    kept = ("version", "ingress")
    sections = sorted(name for name in spec if name not in kept)
    if sections:
        del spec[random.choice(sections)]
    else:
        namespace(random, spec)


COMMON: tuple[Edit, ...] = (
    config,
    high_availability,
    registry,
    services,
    budgets,
    namespace,
    forget,
)
SERVING: tuple[Edit, ...] = (*COMMON, workload(*SERVING_DEPLOYMENTS), kourier, release)
EVENTING: tuple[Edit, ...] = (*COMMON, workload(*EVENTING_DEPLOYMENTS))


def edits(seed: int, start: Spec, choices: tuple[Edit, ...], count: int) -> list[tuple[str, Spec]]:
    """So many specs, each an edit of the one before; every sort of edit is among them."""
    random = Random(seed)
    spec = copy.deepcopy(start)
    order = [*choices, *(random.choice(choices) for _ in range(count))][:count]
    random.shuffle(order)
    found: list[tuple[str, Spec]] = []
    for edit in order:
        spec = copy.deepcopy(spec)
        edit(random, spec)
        found.append((getattr(edit, "__name__", ""), spec))
    return found
