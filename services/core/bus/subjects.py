"""Every stream, consumer and subject name, in one place. All begin with the prefix: stacks may share a NATS server."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

PARTITIONS = 64

CONSUMER = "executors"
"""The one durable consumer of the ready stream; all executors pull from it, so a hint reaches one of them."""


def partition_of(run_id: UUID) -> int:
    """The partition of a run, 0–63: the same as `rt.part_of` in the database."""
    return run_id.int & (PARTITIONS - 1)


@dataclass(frozen=True, slots=True)
class Subjects:
    """The names under one prefix (`NatsSettings.prefix`)."""

    prefix: str = "runr"

    @property
    def stream(self) -> str:
        """The work queue that holds the ready hints."""
        return f"{self.prefix.upper()}_READY"

    @property
    def every_ready(self) -> str:
        """All ready hints."""
        return f"{self.prefix}.ready.*"

    @property
    def every_timer(self) -> str:
        """Timer hints of all partitions."""
        return f"{self.prefix}.timer.*"

    @property
    def every_defs(self) -> str:
        """Changes of definitions of all tenants."""
        return f"{self.prefix}.defs.*"

    @property
    def pull(self) -> str:
        """Where ready hints are asked for."""
        return f"$JS.API.CONSUMER.MSG.NEXT.{self.stream}.{CONSUMER}"

    @property
    def dead_stream(self) -> str:
        """The stream that keeps dead letters of the projects' queue streams."""
        return f"{self.prefix.upper()}_DEAD"

    @property
    def every_dead(self) -> str:
        """All dead letters."""
        return f"{self.prefix}.dead.>"

    def dead(self, tenant: int, project: str, stream: str) -> str:
        """Dead letters of a project (its slug) from a stream; neither has dots."""
        return f"{self.prefix}.dead.{tenant}.{project}.{stream}"

    def queue_consumer(self, project: int) -> str:
        """The durable consumer of a project in its queue stream, shared by all who pull for it."""
        return f"{self.prefix}_queue_{project}"

    def ready(self, partition: int) -> str:
        """Ready hints whose first run is of this partition."""
        return f"{self.prefix}.ready.{partition}"

    def timer(self, partition: int) -> str:
        """Timer hints of one partition."""
        return f"{self.prefix}.timer.{partition}"

    def cancel(self, owner: int) -> str:
        """Cancel notices for one holder of leases."""
        return f"{self.prefix}.cancel.{owner}"

    def mail(self, owner: int) -> str:
        """Notices of deliveries to runs of one holder of leases."""
        return f"{self.prefix}.mail.{owner}"

    @property
    def pool(self) -> str:
        """Workflows that only workers serve and that have runs for whoever has such a worker."""
        return f"{self.prefix}.pool"

    def defs(self, tenant: int) -> str:
        """Changes of one tenant's definitions."""
        return f"{self.prefix}.defs.{tenant}"
