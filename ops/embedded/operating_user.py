"""The operating-system user of PostgreSQL, which refuses to run as root."""

import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ops.embedded.fault import EmbeddedFault

user_name: Final = "embedded_postgres"
"""The system user that root runs PostgreSQL as; made on first use."""


@dataclass(frozen=True)
class OperatingUser:
    """Who runs the database server; None means: the one who runs this process."""

    uid: int | None
    gid: int | None

    def process_options(self) -> dict[str, Any]:
        """Arguments of `subprocess.Popen` that make a child run as this user."""
        return {} if self.uid is None else {"user": self.uid, "group": self.gid, "extra_groups": []}

    def own(self, path: Path) -> None:
        """Give the path to this user."""
        if self.uid is not None and self.gid is not None:
            os.chown(path, self.uid, self.gid)

    def open_way_to(self, path: Path) -> None:
        """Let this user pass through the parents of `path`: search permission only, nothing becomes readable."""
        if self.uid is None:
            return
        for parent in path.resolve().parents:
            mode = parent.stat().st_mode
            if not mode & 0o001:
                parent.chmod(mode & 0o7777 | 0o011)


def operating_user() -> OperatingUser:
    """The user to run PostgreSQL as: this one, or for root a system user. Raises `EmbeddedFault`."""
    if os.geteuid() != 0:
        return OperatingUser(None, None)
    try:
        entry = pwd.getpwnam(user_name)
    except KeyError:
        entry = _add_user()
    return OperatingUser(entry.pw_uid, entry.pw_gid)


def _add_user() -> pwd.struct_passwd:
    command = shutil.which("useradd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    remedy = f"Add a system user {user_name}, or start as an ordinary user"
    if command is None:
        raise EmbeddedFault("PostgreSQL cannot run as root, and there is no useradd to add a user for it", remedy)
    made = subprocess.run(  # noqa: S603 - a fixed command
        [command, "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", user_name],
        check=False,
        capture_output=True,
        text=True,
        timeout=30,
    )
    try:
        # Another starter may have added it in the meantime.
        return pwd.getpwnam(user_name)
    except KeyError:
        raise EmbeddedFault(f"useradd could not add {user_name}: {made.stderr.strip()}", remedy) from None
