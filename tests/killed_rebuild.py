"""`weavehold` that kills itself at a named point of a rebuild, for the tests that force it (PRJ-4).

WEAVEHOLD_TEST_KILL_AT: `replayed` (the green version holds a Group), `inside` (a Group's rows are copied, nothing is
committed), `exchanged` (the live version is the rebuilt one, the green one still lies beside it).
"""

import os
import signal

from ops.cli import main
from ops.consumers import rebuild_consumer
from ops.consumers.green import GreenFile, HeldGreenSchema
from projections.store.exchange import ExchangeTransaction

point = os.environ["WEAVEHOLD_TEST_KILL_AT"]


def _die_after(holder, name):
    """Let what is called so be the last thing that is done."""
    done = getattr(holder, name)

    def last(*arguments, **named):
        done(*arguments, **named)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(holder, name, last)


def _die_before(holder, name):
    setattr(holder, name, lambda *_: os.kill(os.getpid(), signal.SIGKILL))


def _arm() -> None:
    if point == "replayed":
        replay = rebuild_consumer.rebuild

        async def replayed(*arguments):
            await replay(*arguments)
            os.kill(os.getpid(), signal.SIGKILL)

        rebuild_consumer.rebuild = replayed
    elif point == "inside":
        _die_after(ExchangeTransaction, "take_group")
    else:
        for green in (GreenFile, HeldGreenSchema):
            _die_before(green, "remove")


if __name__ == "__main__":
    _arm()
    main()
