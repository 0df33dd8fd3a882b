"""All consumers there are. A new one is added here, and the behaviour suite then tests it like the others."""

from projections.consumer import Consumer
from projections.mission_board.consumer import MissionBoard
from projections.work_queue.consumer import WorkQueue


def listed_consumers(agent_id: str) -> tuple[Consumer, ...]:
    """One of each; `agent_id` is whose queue the work queue is."""
    return (WorkQueue(agent_id), MissionBoard())
