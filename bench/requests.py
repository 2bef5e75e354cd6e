"""What an API server was asked, by its own count."""

import re
from collections import Counter

from knfleet.kube.client.verbs import Client

LINE = re.compile(r"^apiserver_request_total\{(?P<labels>[^}]*)\} (?P<count>\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')
READS = frozenset({"GET", "LIST"})
WRITES = frozenset({"POST", "PUT", "PATCH", "APPLY", "DELETE", "DELETECOLLECTION"})
OTHERS = frozenset(
    {"leases", "events", "nodes", "pods", "tokenreviews", "subjectaccessreviews", ""}
)
"""What a cluster's own parts ask for all the time."""

Coded = Counter[tuple[str, str, str]]
"""Requests by verb, resource and status code."""


async def coded_requests(client: Client) -> Coded:
    """How often each verb was used on each resource, and what was answered."""
    text = (await client.raw("GET", "/metrics")).decode()
    found: Coded = Counter()
    for line in LINE.finditer(text):
        labels = dict(LABEL.findall(line["labels"]))
        found[labels["verb"], labels["resource"], labels["code"]] += int(float(line["count"]))
    return found


async def requests(client: Client) -> Counter[tuple[str, str]]:
    """How often each verb was used on each resource, but for the cluster's own business."""
    text = (await client.raw("GET", "/metrics")).decode()
    found: Counter[tuple[str, str]] = Counter()
    for line in LINE.finditer(text):
        labels = dict(LABEL.findall(line["labels"]))
        if labels["resource"] not in OTHERS:
            found[labels["verb"], labels["resource"]] += int(float(line["count"]))
    return found


def by_verb(counted: Counter[tuple[str, str]], verbs: frozenset[str]) -> int:
    """How many requests had one of some verbs."""
    return sum(count for (verb, _), count in counted.items() if verb in verbs)
