"""A projector whose board cannot apply one Event, for the tests that kill it while a Group is quarantined (DUR-5).

WEAVEHOLD_TEST_FAIL_AT: the ID of the Event.
"""

import os

from projections.mission_board.consumer import MissionBoard
from services.projector.main import run

failing_event = os.environ["WEAVEHOLD_TEST_FAIL_AT"]


def _arm() -> None:
    evolve = MissionBoard.evolve

    def evolved(self, event):
        if event.event_id == failing_event:
            raise ValueError("not in this version")
        return evolve(self, event)

    MissionBoard.evolve = evolved


if __name__ == "__main__":
    _arm()
    raise SystemExit(run())
