"""What an authority process refuses to start with, or warns of (OPS-2, TRU-2)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ops.init import Organization, key_file

start_seconds_max = 60


def refused_start(file: Path, **variables: str) -> str:
    """What an authority with this signing key says before it ends with 2."""
    ended = subprocess.run(
        [sys.executable, "-m", "services.authority.main"],
        env={**os.environ, **variables, "WEAVEHOLD_SIGNING_KEY_FILE": str(file)},
        capture_output=True,
        text=True,
        timeout=start_seconds_max,
        check=False,
    )
    assert ended.returncode == 2, ended.stderr
    return ended.stderr


@pytest.mark.parametrize("name", ["operator", "mission_owner"])
def test_it_signs_with_no_other_principals_key(
    name: str, database_url: str, nats_url: str, organization: Organization
) -> None:
    """TRU-2: Events of another Principal would be believed by nobody, so none is ever written."""
    file = key_file(organization.keys_directory, name)
    said = refused_start(
        file,
        WEAVEHOLD_ORGANIZATION=organization.organization_id,
        WEAVEHOLD_DATABASE_URL=database_url,
        WEAVEHOLD_NATS_URL=nats_url,
    )
    assert f"WEAVEHOLD_SIGNING_KEY_FILE is {file}, a key of " in said
    assert "urn:weavehold:service:authority" in said


@pytest.mark.parametrize(("mode", "warnings"), [(0o600, 0), (0o644, 1), (0o640, 1)])
def test_it_warns_of_a_signing_key_that_others_may_read(
    mode: int, warnings: int, database_url: str, nats_url: str, organization: Organization
) -> None:
    """OPS-2, RULE-29: once at its start, with path and remedy; that it then ends has another reason."""
    file = key_file(organization.keys_directory, "authority")
    file.chmod(mode)
    said = refused_start(
        file,
        WEAVEHOLD_ORGANIZATION="urn:weavehold:organization:of-another-database",
        WEAVEHOLD_DATABASE_URL=database_url,
        WEAVEHOLD_NATS_URL=nats_url,
    )
    assert "which this database does not hold" in said
    logged = [json.loads(line) for line in said.splitlines() if "signing_key_readable_by_others" in line]
    assert len(logged) == warnings
    for each in logged:
        assert (each["level"], each["path"]) == ("warning", str(file))
        assert f"chmod 600 {file}" in each["remedy"]
