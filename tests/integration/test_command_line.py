"""The command line: exit codes 0, 1, 2; one JSON object on stdout with --json; logs and faults on stderr (OPS-2)."""

import json
import os
import subprocess
import sys
from importlib import import_module
from inspect import signature
from pathlib import Path

import psycopg
import pytest

from ops.cli import commands
from ops.embedded.directory import StackDirectory

unset = {name: "" for name in os.environ if name.startswith("WEAVEHOLD_")}


def weavehold(*arguments: str | bytes, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ops.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **unset, **variables},
        cwd=cwd,
    )


def test_help_lists_every_command() -> None:
    """OPS-2: the list of commands is the help."""
    shown = weavehold("--help")
    assert shown.returncode == 0
    for name, summary in commands.items():
        assert f"  {name} " in shown.stdout
        assert summary.split()[0] in shown.stdout


@pytest.mark.parametrize("name", commands)
def test_every_command_has_help_with_examples(name: str) -> None:
    """OPS-2: each module is there and says how it is used."""
    module = import_module(f"ops.commands.{name.replace('-', '_')}")
    app = getattr(module, "app", None)
    described = [module.command] if app is None else [each.callback for each in app.registered_commands]
    for command in described:
        assert "Example" in (command.__doc__ or ""), f"{name}: {command.__name__} shows no example"


@pytest.mark.parametrize("arguments", [["no-such"], ["init", "--no-such"], ["up", "--nats-port", "0"]])
def test_a_usage_error_is_2(arguments: list[str]) -> None:
    """OPS-2: wrong usage ends with 2, on stderr."""
    ended = weavehold(*arguments)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert ended.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["keys", "revoke", "urn:weavehold:key:x"], "Missing option '--reason'"),
        (["keys", "rotate", "file.json", "--overlap", "1"], "'--overlap'"),
        (["keys", "failures", "--limit", "many"], "'--limit'"),
        (["init", "--no-such"], "No such option: --no-such"),
        (["no-such"], "No such command 'no-such'"),
        (["keys", "no-such"], "No such command 'no-such'"),
        (["board", b"\xff"], r"argument 2 is not UTF-8: b'\xff'"),
        (["keys", "show", b"urn:\xc3", b"\xff"], r"argument 3 is not UTF-8: b'urn:\xc3'"),
        (["keys", "failures", "--since", "999999d"], "--since is '999999d'; a duration is at most 36500d"),
    ],
)
def test_a_usage_error_is_told_in_one_object(arguments: list[str | bytes], words: str) -> None:
    """OPS-2: whoever finds the usage wrong, and whatever bytes it holds: 2, on stderr, and in one object."""
    ended = weavehold(*arguments, "--json")
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr
    assert ended.stderr
    [only] = ended.stdout.splitlines()
    assert words in json.loads(only)["fault"]


def test_half_a_character_in_a_fault_is_shown(tmp_path: Path) -> None:
    """OPS-2: a fault that quotes JSON of others, in which an escape stands for no character."""
    for name in ("conformance", "cryptography", "admission"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.json").write_text(r'{"protocolVersion": "\ud800"}')
    ended = weavehold("conformance", "--bundle", str(tmp_path), "--json")
    assert (ended.returncode, "Traceback" in ended.stderr) == (2, False), ended
    assert "\ufffd" in json.loads(ended.stdout)["fault"]


@pytest.mark.parametrize("as_json", [True, False])
def test_an_unexpected_fault_is_told_in_one_object(tmp_path: Path, as_json: bool) -> None:
    """OPS-2: exit 1, the traceback on stderr, and with --json still one object on stdout."""
    broken = (
        "from ops import cli; from ops.commands import conformance\n"
        "def run_bundles(folder): raise LookupError('half \\ud800 a thing')\n"
        "conformance.run_bundles = run_bundles\n"
        "cli.main()"
    )
    arguments = ["conformance", "--bundle", str(tmp_path), *(["--json"] if as_json else [])]
    ended = subprocess.run(
        [sys.executable, "-c", broken, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert (ended.returncode, ended.stderr.count("Traceback")) == (1, 1), ended
    if as_json:
        assert json.loads(ended.stdout) == {"fault": "unexpected LookupError: half \ufffd a thing"}
    else:
        assert ended.stdout == ""


def test_a_service_without_settings_is_2(tmp_path: Path) -> None:
    """OPS-1, OPS-2: variable and remedy on stderr."""
    ended = weavehold("relay", cwd=tmp_path)
    assert ended.returncode == 2
    assert "WEAVEHOLD_ORGANIZATION is not set" in ended.stderr


@pytest.mark.parametrize(
    "arguments", [["keys", "show"], ["verify"], ["group", "show", "urn:x"], ["cursor", "show"], ["keys", "audit"]]
)
def test_a_stopped_stack_is_told_first(tmp_path: Path, arguments: list[str]) -> None:
    """OPS-2: where a stack lies and does not run, that is what is said; a variable of one's own counts for more."""
    directory = StackDirectory.at(tmp_path / "a stack")
    directory.prepare()
    ended = weavehold(*arguments, "--directory", str(directory.path), cwd=tmp_path)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert f"the stack in {directory.path} is not running. Start it with `weavehold up --directory '" in ended.stderr
    directory.write_variables({"WEAVEHOLD_ORGANIZATION": "no URI"})
    assert "WEAVEHOLD_ORGANIZATION is 'no URI'" in weavehold("keys", "show", "--directory", str(directory.path)).stderr


def test_what_the_help_says_of_json_is_so() -> None:
    """OPS-2: every command takes --json, except the services, which the help names."""
    services = {"authority", "relay", "worker", "projector"}
    assert "--json except the services (authority, relay, worker, projector)" in " ".join(
        weavehold("--help").stdout.split()
    )
    for name in commands:
        module = import_module(f"ops.commands.{name.replace('-', '_')}")
        app = getattr(module, "app", None)
        described = [module.command] if app is None else [each.callback for each in app.registered_commands]
        for command in described:
            assert ("as_json" in signature(command).parameters) is (name not in services), name


def test_migrate_and_init_prepare_a_given_database(empty_database_url: str, tmp_path: Path) -> None:
    """OPS-2: a dry run prints the SQL and touches nothing; then one JSON object each, again without a change."""
    given = {"WEAVEHOLD_DATABASE_URL": empty_database_url}
    pending = json.loads(weavehold("migrate", "--dry-run", "--json", cwd=tmp_path, **given).stdout)["pending"]
    assert "CREATE TABLE organization" in pending[0]["sql"]
    with psycopg.connect(empty_database_url) as connection:
        assert connection.execute(
            "SELECT to_regclass('organization'), to_regclass('schema_migrations')"
        ).fetchone() == (
            None,
            None,
        )
    applied = weavehold("migrate", "--json", cwd=tmp_path, **given)
    assert [each["file"] for each in json.loads(applied.stdout)["applied"]] == [each["file"] for each in pending]
    made = json.loads(weavehold("init", "--name", "acme", "--shards", "3", "--json", cwd=tmp_path, **given).stdout)
    assert made["organizationId"] == "urn:weavehold:organization:acme"
    assert made["created"]
    again = weavehold("init", "--name", "acme", "--json", cwd=tmp_path, **given)
    assert json.loads(again.stdout) == made | {"created": []}
    assert (tmp_path / ".weavehold" / "keys" / "mission-owner.json").exists()
    assert not (tmp_path / ".weavehold" / "postgres").exists()


def test_a_fault_is_told_in_one_object(empty_database_url: str, tmp_path: Path) -> None:
    """OPS-2: a fault is on stderr for people and in one object for programs."""
    given = {"WEAVEHOLD_DATABASE_URL": empty_database_url}
    refused = weavehold("init", "--name", "Not Good", "--json", cwd=tmp_path, **given)
    assert refused.returncode == 2
    assert "'Not Good' cannot be used" in json.loads(refused.stdout)["fault"]
    assert "'Not Good' cannot be used" in refused.stderr
    assert "Traceback" not in refused.stderr
    gone = weavehold("migrate", "--json", cwd=tmp_path, WEAVEHOLD_DATABASE_URL="postgresql://a:secret@127.0.0.1:1/x")
    assert gone.returncode == 1
    assert "127.0.0.1:1" in json.loads(gone.stdout)["fault"]
    assert "secret" not in gone.stdout + gone.stderr


def test_init_without_a_database_uses_the_embedded_one(servers_directory: Path) -> None:
    """OPS-2: `weavehold init` works before anything runs, and leaves nothing running."""
    directory = servers_directory / "by-hand"
    made = weavehold("init", "--json", "--directory", str(directory))
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["shards"] == 4
    assert (directory / "postgres" / "data" / "PG_VERSION").exists()
    assert not (directory / "postgres" / "data" / "postmaster.pid").exists()


@pytest.mark.parametrize(
    "arguments",
    [["verify"], ["group", "show", "urn:test:group"], ["group", "events", "urn:test:group"], ["cursor", "show"]],
)
def test_a_database_that_is_away_is_one_message(arguments: list[str], tmp_path: Path) -> None:
    """OPS-2: no traceback, a remedy, exit code 1, one object with --json."""
    variables = {
        "WEAVEHOLD_DATABASE_URL": "postgresql://somebody:secret@127.0.0.1:1/absent",
        "WEAVEHOLD_NATS_URL": "nats://127.0.0.1:1",
        "WEAVEHOLD_ORGANIZATION": "urn:test:organization",
    }
    ended = weavehold(*arguments, "--json", cwd=tmp_path, **variables)
    assert ended.returncode == 1
    assert ended.stderr.startswith("weavehold: the database cannot be used: ")
    assert "Traceback" not in ended.stderr
    assert "secret" not in ended.stderr
    assert json.loads(ended.stdout)["fault"] in ended.stderr


def test_a_database_without_our_schema_is_one_message(empty_database_url: str, tmp_path: Path) -> None:
    """OPS-2: what is missing, and the command that makes it."""
    variables = {"WEAVEHOLD_DATABASE_URL": empty_database_url, "WEAVEHOLD_ORGANIZATION": "urn:test:organization"}
    ended = weavehold("group", "show", "urn:test:group", cwd=tmp_path, **variables)
    assert ended.returncode == 1
    assert "Run `weavehold migrate`" in ended.stderr
    assert "Traceback" not in ended.stderr
