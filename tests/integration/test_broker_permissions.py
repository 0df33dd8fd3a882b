"""A broker that runs from `weavehold nats provision`: the whole path works, all else is refused (RULE-25)."""

import asyncio
import contextlib
import json
import os
import shutil
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from nats.aio.client import Client
from nats.errors import Error as BrokerError

from contracts import subjects
from contracts.identifiers import ShardId, token
from ops.command_fault import UsageFault
from ops.init import Organization
from ops.provision.broker_users import settle_account
from ops.verify.run import verify_all
from outbox_relay.stream import ShardStream, StreamLimits
from services.authority.broker_consumers import BrokerConsumers
from services.authority.provision_delivery import consumer_name
from services.process import broker
from services.process.settings import BrokerCredentials, SettingsFault
from tests.agent_rig import PlantedMission, Stack, running_stack, small_mission
from tests.projector_rig import until
from tests.provisioned_broker import ProvisionedBroker, call, refusal

here = "urn:weavehold:organization:here"
there = "urn:weavehold:organization:there"
ada, bob = "urn:weavehold:agent:ada", "urn:weavehold:agent:bob"
incarnation = "0" * 32
shard = ShardId(1)
stream = subjects.stream_name(here, shard, incarnation)
alpha, beta = "urn:weavehold:group:alpha", "urn:weavehold:group:beta"


@pytest.fixture
def server(servers_directory: Path) -> Iterator[ProvisionedBroker]:
    folder = servers_directory / "provisioned"
    made = ProvisionedBroker(folder)
    made.provision(here, (ada, bob))
    made.start()
    try:
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder)


async def test_the_whole_path_works(
    server: ProvisionedBroker, organization: Organization, database_url: str, tmp_path: Path
) -> None:
    """RULE-25: session, Mission, offer, delivery, work, acknowledgement, projection, verification; and nothing
    that a process of ours does is refused."""
    identity = organization.organization_id
    server.provision(identity, ("urn:weavehold:agent:editor", ada))
    server.reload()

    def credentials(name: str) -> BrokerCredentials:
        user = {"client": "client-test"}.get(name, name.replace("worker-", "agent-"))
        return server.credentials(identity, user)

    await until(lambda: is_let_in(server, credentials("client")))
    async with running_stack(organization, database_url, server.url, tmp_path, credentials=credentials) as stack:
        projector = stack.process(
            "services.projector.main", "projector", WEAVEHOLD_PROJECTIONS_DIR=str(tmp_path / "projections")
        )
        projector.start()
        await stack.register("editor", "ada")
        coordinator = await stack.client("editor")
        await coordinator.open_session()
        mission = PlantedMission(stack, coordinator, small_mission(tmp_path), "permitted")
        await mission.create()
        await mission.invite("ada")
        async with stack.working("ada"):
            for work in mission.file.work:
                await mission.until(await mission.offer(work), "submitted")
        async with server.client(identity, "operator") as operator:
            await until(lambda: projected(operator, organization))
        await replaced(stack, server)
        report = await verify_all(database_url, identity, nats_url=server.url, nats_credentials=credentials("operator"))
        assert report.ok, report.findings
        for process in stack.processes:
            code = await asyncio.to_thread(process.end)
            assert code == 0, process.log.read_text()[-3000:]
        for log in tmp_path.glob("*.log"):
            assert "ermissions violation" not in log.read_text(), log.name


async def replaced(stack: Stack, server: ProvisionedBroker) -> None:
    """A session of the Agent ends when the next one opens: its process is delivered nothing any more."""
    old, new = await stack.client("ada", reopens=False), await stack.client("ada", reopens=False)
    delivered = []
    for client in (old, new):
        await client.open_session()
        standing = await client.memberships()
        delivered += [(delivery.stream, delivery.consumer) for delivery in standing.deliveries]
    [before, after] = delivered
    assert before[0] == after[0]
    assert before[1] != after[1]
    for client, (name, consumer), status in ((old, before, "503"), (new, after, "404")):
        inbox = await client.connection.subscribe(client.connection.new_inbox())
        asked = b'{"batch":1,"no_wait":true}'
        await client.connection.publish(f"$JS.API.CONSUMER.MSG.NEXT.{name}.{consumer}", asked, reply=inbox.subject)
        answer = await inbox.next_msg(30)
        # Nobody answers for a consumer that is gone; the present one delivers, or has nothing new.
        assert (answer.headers or {}).get("Status") == status or (client is new and answer.data)


async def projected(operator: Client, organization: Organization) -> bool:
    """Whether the projector has acknowledged all that is in the streams."""
    for number in (1, 2):
        name = subjects.stream_name(organization.organization_id, ShardId(number), organization.incarnation)
        described = await call(operator, f"CONSUMER.INFO.{name}.mission_board-{number}")
        if "error" in described or described["num_pending"] or described["num_ack_pending"]:
            return False
    return True


async def is_let_in(server: ProvisionedBroker, credentials: BrokerCredentials) -> bool:
    """Whether the server knows this user by now."""
    try:
        client = await broker.connect(server.url, name="look", credentials=credentials)
    except (BrokerError, OSError, TimeoutError):
        return False
    await client.close()
    return True


async def prepared(server: ProvisionedBroker) -> None:
    """A stream with one Event of each of two Groups, and a consumer of each Agent, made by relay and authority."""
    async with server.client(here, "relay") as relay:
        assert await ShardStream(relay, here, shard, StreamLimits()).create(incarnation, 1)
        for group in (alpha, beta):
            await relay.request(subjects.event(here, shard, group), b"{}", timeout=30)
    async with server.client(here, "authority") as authority:
        consumers = BrokerConsumers(authority)
        for agent, group in ((ada, alpha), (bob, beta)):
            await consumers.put(stream, consumer_name(agent, 1), (subjects.event(here, shard, group),), 1)


async def pulled(client, consumer: str) -> list[bytes]:
    """What a consumer delivers now, acknowledged."""
    inbox, got = client.new_inbox(), []
    subscription = await client.subscribe(inbox)
    request = {"batch": 10, "expires": int(3e8)}
    await client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}", json.dumps(request).encode(), reply=inbox)
    with contextlib.suppress(TimeoutError):
        while True:
            message = await subscription.next_msg(30)
            if message.reply:
                got.append(message.subject)
                await client.publish(message.reply, b"+ACK")
            else:
                break
    await subscription.unsubscribe()
    return got


async def test_an_agent_has_its_own_and_nothing_else(server: ProvisionedBroker) -> None:
    """RULE-25: pulls and acknowledges on its own consumer; another's, streams, other Groups and roles are refused."""
    await prepared(server)
    hers, his = consumer_name(ada, 1), consumer_name(bob, 1)
    names = {"wh": f"wh.{token(here)}"}
    published = [
        f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{his}",
        f"$JS.ACK.{stream}.{his}.1.1.1.1.0",
        f"$JS.API.CONSUMER.RESET.{stream}.{his}",
        f"$JS.API.CONSUMER.INFO.{stream}.{his}",
        f"$JS.API.CONSUMER.CREATE.{stream}.{hers}",
        f"$JS.API.CONSUMER.CREATE.{stream}.{hers}.{subjects.event(here, shard, beta)}",
        f"$JS.API.CONSUMER.DURABLE.CREATE.{stream}.{hers}",
        f"$JS.API.CONSUMER.DELETE.{stream}.{hers}",
        f"$JS.API.CONSUMER.DELETE.{stream}.{his}",
        f"$JS.API.CONSUMER.NAMES.{stream}",
        f"$JS.API.STREAM.CREATE.{stream}",
        f"$JS.API.STREAM.DELETE.{stream}",
        f"$JS.API.STREAM.PURGE.{stream}",
        f"$JS.API.STREAM.INFO.{stream}",
        f"$JS.API.STREAM.MSG.GET.{stream}",
        f"$JS.API.DIRECT.GET.{stream}",
        f"$JS.API.DIRECT.GET.{stream}.{subjects.event(here, shard, beta)}",
        subjects.event(here, shard, alpha),
        subjects.head(here, shard, alpha),
        subjects.log_grown(here, shard),
        subjects.membership_changed(here, bob),
        subjects.keys_changed(here),
        subjects.lane(here, "authority-1", shard),
        "_INBOX.somebody",
        f"$SYS.REQ.USER.INFO.{names['wh']}",
    ]
    subscribed = [
        subjects.event(here, shard, alpha),
        subjects.event(here, shard, beta),
        subjects.shard_events(here, shard),
        f"{names['wh']}.>",
        ">",
        subjects.head(here, shard, beta),
        f"{names['wh']}.head.*.*",
        subjects.membership_changed(here, bob),
        f"{names['wh']}.member.*",
        # Whoever answered these would be the authority to everybody who asks.
        subjects.command_ingress(here),
        subjects.session(here),
        subjects.replay(here),
        subjects.acknowledgement(here),
        subjects.query(here),
        f"{names['wh']}.lane.>",
        "_INBOX.>",
        f"_INBOX.{broker.public_nkey(server.credentials(here, 'agent-bob').nkey_seed_file)}.>",
        "$JS.EVENT.ADVISORY.>",
    ]
    async with server.client(here, "agent-ada") as agent:
        assert await pulled(agent, hers) == [subjects.event(here, shard, alpha)]
        for subject in published:
            said = await refusal(agent, lambda subject=subject: agent.publish(subject, b"{}"))
            assert "permissions violation for publish" in said.lower(), subject
        for subject in subscribed:
            said = await refusal(agent, lambda subject=subject: agent.subscribe(subject))
            assert "permissions violation for subscription" in said.lower(), subject
        said = await refusal(agent, lambda: agent.subscribe(subjects.command_ingress(here), queue="authority"))
        assert "permissions violation" in said.lower()
        for subject in (subjects.membership_changed(here, ada), subjects.keys_changed(here)):
            assert await refusal(agent, lambda subject=subject: agent.subscribe(subject)) == ""
    async with server.client(here, "operator") as operator:
        described = await call(operator, f"CONSUMER.INFO.{stream}.{his}")
        assert described["ack_floor"]["stream_seq"] == 0
        assert (await call(operator, f"STREAM.INFO.{stream}"))["state"]["messages"] == 2


async def test_every_part_keeps_to_its_part(server: ProvisionedBroker) -> None:
    """RULE-25: a relay writes Events and nothing else; authority and projector write none; clients only ask."""
    await prepared(server)
    event = subjects.event(here, shard, alpha)
    refused = {
        "relay": [
            subjects.command_ingress(here),
            subjects.query(here),
            subjects.head(here, shard, alpha),
            subjects.event(there, shard, alpha),
            f"wh.{token(here)}.ev.1.a.b",
            f"$JS.API.STREAM.DELETE.{stream}",
            f"$JS.API.STREAM.PURGE.{stream}",
            f"$JS.API.STREAM.MSG.DELETE.{stream}",
            f"$JS.API.CONSUMER.DELETE.{stream}.{consumer_name(ada, 1)}",
            f"$JS.API.CONSUMER.CREATE.{stream}.mine",
            "_INBOX.somebody",
        ],
        "authority": [
            event,
            f"$JS.API.STREAM.DELETE.{stream}",
            f"$JS.API.STREAM.CREATE.{stream}",
            f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer_name(ada, 1)}",
            subjects.command_ingress(here),
            "_INBOX.somebody",
        ],
        "projector": [
            event,
            subjects.command_ingress(here),
            subjects.session(here),
            f"$JS.API.CONSUMER.DELETE.{stream}.{consumer_name(ada, 1)}",
            f"$JS.API.CONSUMER.CREATE.{stream}.{consumer_name(ada, 1)}",
            f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer_name(ada, 1)}",
            f"$JS.API.STREAM.DELETE.{stream}",
        ],
        "client-test": [event, f"$JS.API.STREAM.INFO.{stream}", f"$JS.API.CONSUMER.CREATE.{stream}.mine"],
        "operator": [event, subjects.head(here, shard, alpha), subjects.keys_changed(here)],
    }
    asked = [
        subjects.command_ingress(here),
        subjects.session(here),
        subjects.query(here),
        subjects.shard_events(here, shard),
    ]
    for user, subjects_of in refused.items():
        async with server.client(here, user) as client:
            for subject in subjects_of:
                said = await refusal(client, lambda c=client, s=subject: c.publish(s, b"{}"))
                assert "permissions violation for publish" in said.lower(), (user, subject)
            for subject in asked[3:] if user == "authority" else asked:
                said = await refusal(client, lambda c=client, s=subject: c.subscribe(s))
                assert "permissions violation for subscription" in said.lower(), (user, subject)


async def test_the_consumer_of_a_replaced_session_is_gone_for_its_process(server: ProvisionedBroker) -> None:
    """RULE-25: when the authority deletes it, what the old process pulls there is answered by nobody."""
    await prepared(server)
    async with server.client(here, "agent-ada") as old, server.client(here, "authority") as authority:
        consumers = BrokerConsumers(authority)
        await consumers.delete(stream, consumer_name(ada, 1))
        await consumers.put(stream, consumer_name(ada, 2), (subjects.event(here, shard, alpha),), 1)
        assert await pulled(old, consumer_name(ada, 1)) == []
        inbox = await old.subscribe(old.new_inbox())
        await old.publish(
            f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer_name(ada, 1)}", b'{"batch":1}', reply=inbox.subject
        )
        assert (await inbox.next_msg(30)).headers["Status"] == "503"


async def test_organizations_are_apart(server: ProvisionedBroker) -> None:
    """RULE-32: another Organization's account sees no stream of this one, and its keys stay when it joins."""
    await prepared(server)
    before = server.provision(here, (ada, bob)).users
    server.provision(there, (ada,))
    assert server.provision(here).users == before
    server.reload()
    await until(lambda: is_let_in(server, server.credentials(there, "operator")))
    async with server.client(there, "operator") as operator:
        assert (await call(operator, "STREAM.NAMES"))["streams"] in (None, [])
        assert "error" in await call(operator, f"STREAM.INFO.{stream}")
        said = await refusal(operator, lambda: operator.publish(subjects.command_ingress(here), b"{}"))
        assert "permissions violation" in said.lower()


async def test_strangers_are_not_let_in(server: ProvisionedBroker, servers_directory: Path, tmp_path: Path) -> None:
    """OPS-1: without a key, with a key that nobody registered, and against a server of another authority."""
    stranger = ProvisionedBroker(tmp_path / "stranger")
    stranger.provision(here)
    own = server.credentials(here, "relay")
    shown = [
        (BrokerCredentials(ca_file=server.ca_file), BrokerError),
        (BrokerCredentials(ca_file=server.ca_file, token="guessed"), BrokerError),
        (
            BrokerCredentials(
                ca_file=server.ca_file, nkey_seed_file=stranger.credentials(here, "relay").nkey_seed_file
            ),
            BrokerError,
        ),
        (BrokerCredentials(ca_file=stranger.ca_file, nkey_seed_file=own.nkey_seed_file), ssl.SSLError),
        (BrokerCredentials(nkey_seed_file=own.nkey_seed_file), ssl.SSLError),
    ]
    for credentials, fault in shown:
        with pytest.raises((fault, BrokerError)):
            await broker.connect(server.url, name="stranger", credentials=credentials)
    with pytest.raises((ssl.SSLError, OSError, TimeoutError, BrokerError)):
        # Somebody else's address: the certificate does not name it.
        await broker.connect(server.url.replace("127.0.0.1", "localhost"), name="x", credentials=own)


async def test_a_plain_server_is_not_talked_to(nats_url: str, server: ProvisionedBroker) -> None:
    """OPS-1: who is told whom to trust says nothing to a server that offers no encryption, whatever that one says."""
    credentials = server.credentials(here, "relay")
    with pytest.raises((ssl.SSLError, OSError, TimeoutError, BrokerError)):
        await broker.connect(nats_url, name="x", credentials=credentials)


async def test_a_secure_connection_is_made_again(server: ProvisionedBroker) -> None:
    """DUR-3: a server that goes away and comes back is found again, encrypted as before."""
    async with server.client(here, "relay") as client:
        server.stop()
        await until(lambda: is_connected(client, wanted=False))
        server.start()
        await until(lambda: is_connected(client, wanted=True))
        assert (await call(client, "STREAM.NAMES"))["streams"] in (None, [])


async def is_connected(client: Client, *, wanted: bool) -> bool:
    return client.is_connected is wanted


def test_unusable_credentials_are_named(tmp_path: Path) -> None:
    """OPS-2: a seed or certificate file that cannot be used is named with its variable."""
    damaged = tmp_path / "damaged"
    damaged.write_text("SUX")
    for credentials, variable in (
        (BrokerCredentials(nkey_seed_file=damaged), "WEAVEHOLD_NATS_NKEY_SEED_FILE"),
        (BrokerCredentials(nkey_seed_file=tmp_path / "absent"), "WEAVEHOLD_NATS_NKEY_SEED_FILE"),
        (BrokerCredentials(ca_file=damaged), "WEAVEHOLD_NATS_CA_FILE"),
    ):
        with pytest.raises(SettingsFault, match=variable):
            asyncio.run(broker.connect("nats://127.0.0.1:1", name="x", credentials=credentials))


def test_provisioning_again_keeps_what_is_there(tmp_path: Path) -> None:
    """OPS-2: keys, CA and certificate stay; new Agents are added; a seed that was taken away stays in force."""
    folder = ProvisionedBroker(tmp_path / "n")
    first = folder.provision(here, (ada,))
    files = {path: path.read_bytes() for path in folder.directory.rglob("*") if path.is_file()}
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert folder.provision(here, (ada,)) == first
    assert {path: path.read_bytes() for path in files} == files
    Path(first.users[0].seed_file).unlink()
    again = folder.provision(here, (bob,))
    assert {user.public_nkey for user in first.users} < {user.public_nkey for user in again.users}
    assert again.users[0].seed_file is None
    configuration = json.loads((folder.directory / "nats-server.conf").read_text())
    [account] = configuration["accounts"].values()
    assert {user["nkey"] for user in account["users"]} == {user.public_nkey for user in again.users}
    with pytest.raises(UsageFault):
        settle_account(folder.directory, here, 2, agents=(), clients=("../x",))


def weavehold(*arguments: str, cwd: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run the command line in a directory."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WEAVEHOLD_")}
    command = [sys.executable, "-m", "ops.cli", *arguments]
    return subprocess.run(
        command, check=False, cwd=cwd, env=clean | variables, capture_output=True, text=True, timeout=120
    )


def test_the_command_reads_agents_from_the_database(
    organization: Organization, database_url: str, tmp_path: Path
) -> None:
    """OPS-2: one JSON object, Agents with a card included; without database and --shards it says what to do."""
    given = {"WEAVEHOLD_ORGANIZATION": organization.organization_id, "WEAVEHOLD_DATABASE_URL": database_url}
    done = weavehold("nats", "provision", "--out", "n", "--agent", bob, "--json", cwd=tmp_path, **given)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [user["name"] for user in found["users"]] == ["authority", "relay", "projector", "operator", "agent-bob"]
    assert found["url"] == "tls://127.0.0.1:4222"
    alone = weavehold("nats", "provision", "--out", "m", "--organization", here, cwd=tmp_path)
    assert (alone.returncode, "--shards" in alone.stderr) == (2, True)
