"""Faults that end a command of `weavehold` with a message instead of a traceback (OPS-2)."""

from typing import ClassVar


class CommandFault(Exception):
    """What could not be done. The message names the thing, the value and the remedy; the command exits with 1."""

    exit_code: ClassVar[int] = 1


class UsageFault(CommandFault):
    """What was asked for wrongly; the command exits with 2."""

    exit_code: ClassVar[int] = 2
