"""The interfaces between the core and everything outside it.

Services are written against these protocols and nothing else, so that the simulator can run the
product's own code with virtual time, seeded ids and faults at every call. Each method of a
store port is one transaction; everything a service does between two port calls is pure.
"""

from paddock.ports.fleet import (
    Circumstances,
    EndRecords,
    Fleet,
    FleetUnavailable,
    Reviewer,
    ReviewsExhausted,
)
from paddock.ports.github import GitHub
from paddock.ports.store import Store
from paddock.ports.time import Clock, Ids, Subscription, Topic, Wakeups

__all__ = [
    "Circumstances",
    "Clock",
    "EndRecords",
    "Fleet",
    "FleetUnavailable",
    "GitHub",
    "Ids",
    "Reviewer",
    "ReviewsExhausted",
    "Store",
    "Subscription",
    "Topic",
    "Wakeups",
]
