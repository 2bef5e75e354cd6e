"""The hub's access to AWS: one identity for all controllers, one change of a cluster at once."""

import asyncio
from collections import defaultdict

from knfleet.aws.aws_client import AwsClient
from knfleet.aws.aws_identity import ProcessIdentity


class HubAwsAccount:
    """Calls AWS for the hub; nothing is called before the first cluster needs it."""

    def __init__(self, client: AwsClient | None = None) -> None:
        self.client = client or AwsClient()
        self.identities: dict[str, ProcessIdentity] = {}
        self.locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    def identity(self, region: str) -> ProcessIdentity:
        """The hub's identity, as STS of a region gives it."""
        return self.identities.setdefault(region, ProcessIdentity(self.client, region))

    def exclusive(self, cluster: str) -> asyncio.Lock:
        """Held by the one that changes what a cluster has in AWS."""
        return self.locks[cluster]
