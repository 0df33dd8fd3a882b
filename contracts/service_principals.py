"""The services of an Organization that others must know by name: who accepts Events, and who keeps the key registry."""

from typing import Final

from contracts.documents.common import Actor, ActorType

authority: Final = Actor(type=ActorType.SERVICE, id="urn:weavehold:service:authority")
"""Accepts Commands and signs Events; acts in facts that no Command asked for."""
registry: Final = Actor(type=ActorType.SERVICE, id="urn:weavehold:service:registry")
"""Signs Agent Cards."""
operator: Final = Actor(type=ActorType.SERVICE, id="urn:weavehold:service:operator")
"""Acts for the people who run the Organization."""
registrars: Final = frozenset({registry, operator})
"""The services that bind and end keys."""
