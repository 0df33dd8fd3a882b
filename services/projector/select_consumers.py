"""Which consumers a projector keeps: those that its settings name, or all of the server's side."""

from typing import Final

from projections.consumer import Consumer
from projections.listing import server_consumers
from services.process.settings import Environment, SettingsFault

selection_variable: Final = "WEAVEHOLD_PROJECTIONS"


def select_consumers(environment: Environment) -> tuple[Consumer, ...]:
    """The consumers that WEAVEHOLD_PROJECTIONS names, separated by commas; all without it. Raises SettingsFault."""
    listed = {consumer.name: consumer for consumer in server_consumers()}
    text = environment.optional(selection_variable)
    if text is None:
        return tuple(listed.values())
    named = dict.fromkeys(part.strip() for part in text.split(","))
    unknown = [name for name in named if name not in listed]
    if unknown:
        problem = f"names {', '.join(map(repr, unknown))}, which no consumer of the server's side is called"
        raise SettingsFault(selection_variable, problem, f"Separate some of {', '.join(listed)} with commas")
    return tuple(listed[name] for name in named)
