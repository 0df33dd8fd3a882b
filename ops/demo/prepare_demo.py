"""Get a demo's people and processes together: keys, Agent Cards, sessions of the Coordinators, Worker processes."""

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from msgspec import Struct

from contracts.signature import SigningKey
from ops.command_fault import UsageFault
from ops.demo.conduct_mission import Conductor, MissionMark
from ops.demo.mission_tables import AgentTable, MissionFile
from ops.demo.register_agents import NewAgent, RegistrationFault, agent_key, register_agent
from ops.embedded.services import worker
from ops.embedded.supervisor import Supervisor
from ops.embedded.unit import ServiceSpec
from services.agent.connect import Client, SessionLost
from services.process import broker
from services.process.unique import uuid7_urn
from services.worker.artifact_store import ArtifactStore
from services.worker.work_plan import job_keys

execution_lease_seconds: Final = 20
"""Length of the Workers' Execution Leases: short, so that renewals happen while one watches."""


class Cast(Struct, frozen=True, kw_only=True):
    """Who takes part. `workers` maps Agent names to the services that run them."""

    owner: Client
    conductors: tuple[Conductor, ...]
    workers: dict[str, str]


def agents_of(files: Sequence[MissionFile]) -> dict[str, AgentTable]:
    """All Agents of all files. Raises UsageFault when files disagree about one."""
    agents: dict[str, AgentTable] = {}
    for file in files:
        for agent in file.agent:
            known = agents.setdefault(agent.name, agent)
            if known != agent:
                raise UsageFault(
                    f"the Mission files declare agent {agent.name!r} differently: give it the same slots and skills "
                    "in each, or another name"
                )
    return agents


async def prepare_demo(
    stack: Supervisor, files: Sequence[MissionFile], tell: Callable[[str], None], closing: AsyncExitStack
) -> Cast:
    """Register all Agents, open the Coordinators' sessions, start the Workers.

    What is opened is closed with `closing`. Raises UsageFault, RegistrationFault.
    """
    agents = agents_of(files)
    keys = {name: agent_key(_agent_keys(stack), name) for name in agents}

    async def client(key: SigningKey) -> Client:
        connection = await broker.connect(stack.nats_url, name=f"demo {key.principal.id}", token=stack.nats_token)
        closing.push_async_callback(connection.close)
        return Client(connection, stack.organization.organization_id, key)

    registry = await client(stack.organization.keys.registry)
    owner = await client(stack.organization.keys.mission_owner)
    for name, agent in agents.items():
        skills = agent.skills or tuple(job_keys())
        await register_agent(
            registry, owner.key.principal, NewAgent(name=name, key=keys[name], skills=skills, slots=agent.slots)
        )
    tell(f"registered {len(agents)} Agents")
    coordinators: dict[str, Client] = {}
    for name in sorted({file.mission.coordinator for file in files}):
        coordinators[name] = await client(keys[name])
        try:
            await coordinators[name].open_session()
        except SessionLost as lost:
            raise RegistrationFault(f"no session for the Coordinator {name}: {lost}") from lost
    content = ArtifactStore(stack.directory.path / "artifacts")
    conductors = tuple(
        Conductor(file, _mark(file), owner, coordinators[file.mission.coordinator], content) for file in files
    )
    names = sorted({name for conductor in conductors for name in conductor.workers})
    workers = {name: (await stack.add_service(_worker(stack, agents[name]))).name for name in names}
    return Cast(owner=owner, conductors=conductors, workers=workers)


def _mark(file: MissionFile) -> MissionMark:
    """New identifiers for one run of a Mission."""
    run = f"{file.mission.name}-{uuid7_urn().rpartition(':')[2]}"
    return MissionMark(f"urn:weavehold:mission:{run}", f"urn:weavehold:group:{run}")


def _agent_keys(stack: Supervisor) -> Path:
    return stack.directory.keys / "agents"


def _worker(stack: Supervisor, agent: AgentTable) -> ServiceSpec:
    """The Worker process of an Agent; its database and the artifacts lie in the stack's directory."""
    spec = worker(_agent_keys(stack) / f"{agent.name}.json")
    told = {
        "WEAVEHOLD_WORKER_SLOTS": str(agent.slots),
        "WEAVEHOLD_WORKER_LEASE_SECONDS": str(execution_lease_seconds),
    }
    return replace(spec, variables={**spec.variables, **told})
