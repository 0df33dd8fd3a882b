"""A projector that kills itself at a named point, for the tests that force it (PRJ-1).

WEAVEHOLD_TEST_KILL_AT: `inside` (the rows of an Event are made, nothing is committed), `committed` (rows, Cursor and
position are durable, the broker has no acknowledgement).
"""

import os
import signal

from projections.mission_board.consumer import MissionBoard
from services.feed.report_progress import ProgressReport
from services.projector.main import run

point = os.environ["WEAVEHOLD_TEST_KILL_AT"]


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _arm() -> None:
    evolve, note = MissionBoard.evolve, ProgressReport.note

    def evolved(self, event):
        yield from evolve(self, event)
        if point == "inside":
            _die()

    def noted(self, applied):
        note(self, applied)
        if point == "committed" and applied.applied:
            _die()

    MissionBoard.evolve = evolved
    ProgressReport.note = noted


if __name__ == "__main__":
    _arm()
    raise SystemExit(run())
