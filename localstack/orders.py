"""Order events, made from a seed, and the revenue that they must add up to."""

import collections
import json
import random

REGIONS = ["east", "north", "south", "west"]
BATCH = 10


class Orders:
    """Events of one run, whose order numbers no other run has."""

    def __init__(self, seed, run):
        self.chance = random.Random(seed)
        self.next = run * 1_000
        self.latest = {}

    def new(self, region=None):
        """An order that is new."""
        self.next += 1
        event = {
            "order_id": self.next,
            "region": region or self.chance.choice(REGIONS),
            "status": "new",
            "cents": self.chance.randrange(100, 50_000),
        }
        self.latest[self.next] = event
        return event

    def cancel(self, event):
        """The same order, cancelled."""
        self.latest[event["order_id"]] = cancelled = {**event, "status": "cancelled"}
        return cancelled

    def revenue(self, before):
        """What gold must hold: region to (orders, cents), on top of what it held."""
        sums = collections.defaultdict(lambda: [0, 0], {region: list(row) for region, row in before.items()})
        for event in self.latest.values():
            sums[event["region"]][0] += 1
            sums[event["region"]][1] += 0 if event["status"] == "cancelled" else event["cents"]
        return {region: tuple(row) for region, row in sorted(sums.items())}


def lines(events):
    """Events as NDJSON."""
    return "".join(json.dumps(event) + "\n" for event in events).encode()


def batches(events):
    return [events[at : at + BATCH] for at in range(0, len(events), BATCH)]
