"""What an authority process refuses to start with (OPS-2, TRU-2)."""

import os
import subprocess
import sys

import pytest

from ops.init import Organization, key_file

start_seconds_max = 60


@pytest.mark.parametrize("name", ["operator", "mission_owner"])
def test_it_signs_with_no_other_principals_key(
    name: str, database_url: str, nats_url: str, organization: Organization
) -> None:
    """TRU-2: Events of another Principal would be believed by nobody, so none is ever written."""
    file = key_file(organization.keys_directory, name)
    environment = {
        **os.environ,
        "WEAVEHOLD_ORGANIZATION": organization.organization_id,
        "WEAVEHOLD_DATABASE_URL": database_url,
        "WEAVEHOLD_NATS_URL": nats_url,
        "WEAVEHOLD_SIGNING_KEY_FILE": str(file),
    }
    ended = subprocess.run(
        [sys.executable, "-m", "services.authority.main"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=start_seconds_max,
        check=False,
    )
    assert ended.returncode == 2, ended.stderr
    assert f"WEAVEHOLD_SIGNING_KEY_FILE is {file}, a key of " in ended.stderr
    assert "urn:weavehold:service:authority" in ended.stderr
