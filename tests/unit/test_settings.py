"""Settings of a process: typed, validated, refused with a remedy, printed without secrets (OPS-1, OPS-2)."""

from pathlib import Path

import pytest

from services.process.run import ServiceProcess, run_service
from services.process.settings import Environment, SettingsFault, read_settings, redact_url

enough = {
    "WEAVEHOLD_ORGANIZATION": "urn:weavehold:organization:acme",
    "WEAVEHOLD_DATABASE_URL": "postgresql://app:secret@db:5432/weavehold?password=secret",
    "WEAVEHOLD_NATS_URL": "nats://user:secret@nats:4222",
}


def test_settings_have_defaults_for_all_but_the_addresses() -> None:
    settings = read_settings(enough)
    assert settings.keys_directory == Path(".weavehold/keys")
    assert settings.signing_key_file == Path(".weavehold/keys/authority.json")
    assert (settings.health_host, settings.health_port, settings.log_level) == ("127.0.0.1", 0, "info")
    assert settings.nats_token is None
    assert settings.stop_when_closed is None


def test_the_signing_key_defaults_to_the_services_own_and_can_be_set() -> None:
    assert read_settings(enough, signing_key="registry").signing_key_file.name == "registry.json"
    chosen = read_settings(enough | {"WEAVEHOLD_SIGNING_KEY_FILE": "/run/secrets/key.json"})
    assert chosen.signing_key_file == Path("/run/secrets/key.json")


@pytest.mark.parametrize(
    ("variable", "value", "remedy"),
    [
        ("WEAVEHOLD_ORGANIZATION", "", "weavehold init"),
        ("WEAVEHOLD_ORGANIZATION", "acme", "absolute URI"),
        ("WEAVEHOLD_ORGANIZATION", "urn:x:" + "y" * 600, "absolute URI"),
        ("WEAVEHOLD_DATABASE_URL", "", "postgresql://"),
        ("WEAVEHOLD_DATABASE_URL", "mysql://db", "postgresql or postgres"),
        ("WEAVEHOLD_DATABASE_URL", "postgresql://x@[::1", "postgresql or postgres"),
        ("WEAVEHOLD_NATS_URL", "nats:4222,http://x", "nats or tls"),
        ("WEAVEHOLD_HEALTH_PORT", "eighty", "0 to 65535"),
        ("WEAVEHOLD_HEALTH_PORT", "65536", "0 to 65535"),
        ("WEAVEHOLD_LOG_LEVEL", "loud", "debug, info, warning, error"),
        ("WEAVEHOLD_STOP_GRACE_SECONDS", "-1", "seconds from 0 to 3600"),
        ("WEAVEHOLD_STOP_WHEN_CLOSED", "x", "0 to 65535"),
    ],
)
def test_an_unusable_value_names_variable_and_remedy(variable: str, value: str, remedy: str) -> None:
    with pytest.raises(SettingsFault) as refused:
        read_settings(enough | {variable: value})
    assert variable in str(refused.value)
    assert remedy in str(refused.value)


def test_a_refusal_does_not_tell_the_secret_in_the_value() -> None:
    with pytest.raises(SettingsFault) as refused:
        read_settings(enough | {"WEAVEHOLD_DATABASE_URL": "mysql://app:secret@db/x"})
    assert "secret" not in str(refused.value)


def test_a_process_that_uses_no_database_is_not_given_its_address() -> None:
    assert read_settings(enough, uses_database=False).database_url == ""


def test_settings_are_printed_without_secrets() -> None:
    shown = read_settings(enough | {"WEAVEHOLD_NATS_TOKEN": "secret"}).redacted()
    assert "secret" not in repr(shown)
    assert shown["database_url"] == "postgresql://***@db:5432/weavehold?password=***"
    assert shown["nats_token"] == "***"


def test_credentials_of_the_broker_are_files_that_are_there(tmp_path: Path) -> None:
    seed = tmp_path / "relay.nk"
    seed.write_text("S")
    files = {"WEAVEHOLD_NATS_NKEY_SEED_FILE": str(seed), "WEAVEHOLD_NATS_CA_FILE": str(seed)}
    settings = read_settings(enough | files | {"WEAVEHOLD_NATS_INBOX_PREFIX": "_INBOX.ada"})
    shown = settings.broker_credentials
    assert (shown.nkey_seed_file, shown.ca_file, shown.inbox_prefix, shown.token) == (seed, seed, "_INBOX.ada", None)
    for variable in files:
        with pytest.raises(SettingsFault, match=variable):
            read_settings(enough | {variable: str(tmp_path / "absent")})
    for prefix in ("_INBOX.>", "a b", "_INBOX.", "*"):
        with pytest.raises(SettingsFault, match="WEAVEHOLD_NATS_INBOX_PREFIX"):
            read_settings(enough | {"WEAVEHOLD_NATS_INBOX_PREFIX": prefix})


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nats://token@h:1", "nats://***@h:1"),
        ("nats://a:b@h:1,nats://c:d@i:1", "nats://***@h:1,nats://***@i:1"),
        ("postgresql:///db?host=/run/socket", "postgresql:///db?host=/run/socket"),
        ("postgresql://u:p%40q@h/db", "postgresql://***@h/db"),
    ],
)
def test_redaction_keeps_what_is_not_secret(url: str, shown: str) -> None:
    assert redact_url(url) == shown


def test_numbers_and_durations_are_bounded() -> None:
    environment = Environment({"A": "7", "B": "2.5"})
    assert environment.integer("A", minimum=1, maximum=7) == 7
    assert environment.seconds("B", 1.0, minimum=0, maximum=3) == 2.5
    assert environment.seconds("C", 1.0, minimum=0, maximum=3) == 1.0
    with pytest.raises(SettingsFault, match=r"B is '2\.5'"):
        environment.integer("B", minimum=1, maximum=7)
    with pytest.raises(SettingsFault, match="D is not set"):
        environment.text("D")


def test_a_variable_of_unbounded_length_is_refused() -> None:
    with pytest.raises(SettingsFault, match="5000 characters"):
        Environment({"A": "x" * 5000}).text("A")


def test_unusable_settings_end_the_process_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    async def serve(_process: ServiceProcess) -> None:
        raise AssertionError("must not run")

    assert run_service("authority", serve, variables={}) == 2
    printed = capsys.readouterr()
    assert "WEAVEHOLD_ORGANIZATION is not set" in printed.err
    assert printed.out == ""
