"""PostgreSQL behind `paddock.ports.reading`, which documents each method."""

from __future__ import annotations

from paddock.ports.reading import Reading
from paddock.store.reading.details import Details
from paddock.store.reading.lists import Lists
from paddock.store.reading.overview import Overviews


class PgReading(Lists, Overviews, Details):
    """The read model. It changes nothing."""


def _implements_the_port(reading: PgReading) -> Reading:
    return reading
