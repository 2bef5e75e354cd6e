"""Clusters that have got over being cleaned, so that nobody pays for the turn before."""

import asyncio

from testbed.clusters import Lent, Pool

REST_SECONDS = 31.0
"""For 30 seconds after a namespace was deleted, an API server looks its name up before every write
in it: 200 more requests for an installation, a tenth of what it costs."""


async def lend_rested(pool: Pool, count: int) -> list[Lent]:
    """So many clusters, clean, ready and at rest; the hub first."""
    used = frozenset(pool.used)
    lent = (await pool.lend(count))[:count]
    if any(each.name in used for each in lent):
        await asyncio.sleep(REST_SECONDS)
    return lent
