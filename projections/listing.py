"""All consumers there are. A new one is added here, and the behaviour suite then tests it like the others.

`weavehold consumer new` adds two lines: the import, and the entry among those of the server's side.
"""

from projections.audit_trail.consumer import AuditTrail
from projections.consumer import Consumer
from projections.mission_board.consumer import MissionBoard
from projections.usage_report.consumer import UsageReport
from projections.work_queue.consumer import WorkQueue


def server_consumers() -> tuple[Consumer, ...]:
    """One of each consumer of the server's side: it sees every Group, and a projector keeps it."""
    return (
        MissionBoard(),
        AuditTrail(),
        UsageReport(),
    )


def listed_consumers(agent_id: str) -> tuple[Consumer, ...]:
    """One of each; `agent_id` is whose queue the work queue is."""
    return (WorkQueue(agent_id), *server_consumers())
