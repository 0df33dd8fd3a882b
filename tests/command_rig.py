"""The command line as its users run it: inside this process or in one of its own."""

import asyncio
import io
import json
import logging
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
import structlog

from ops.cli import main
from tests.agent_rig import Stack


class Ran(msgspec.Struct):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on stdout."""
        [only] = self.out.splitlines()
        return json.loads(only)


async def weavehold(stack: Stack, *arguments: str, given: bytes = b"", **variables: str) -> Ran:
    """Run the command line inside this process, in a thread of its own."""
    return await asyncio.to_thread(_run_here, _environment(stack, variables), arguments, given)


async def weavehold_process(stack: Stack, *arguments: str, given: bytes = b"", **variables: str) -> Ran:
    """Run the command line in a process of its own."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "ops.cli", *arguments],
        env=_environment(stack, variables),
        input=given,
        capture_output=True,
        timeout=120,
        check=False,
    )
    return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())


def _environment(stack: Stack, variables: dict[str, str]) -> dict[str, str]:
    given = {**os.environ, **stack.variables, "COLUMNS": "160", **variables}
    return {name: value for name, value in given.items() if value}


def _run_here(environment: dict[str, str], arguments: tuple[str, ...], given: bytes) -> Ran:
    out, err = io.StringIO(), io.StringIO()
    root, configured = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers, root.level
    try:
        with (
            patch.dict(os.environ, environment, clear=True),
            patch.object(sys, "argv", ["weavehold", *arguments]),
            patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(given))),
            redirect_stdout(out),
            redirect_stderr(err),
            pytest.raises(SystemExit) as ended,
        ):
            main()
    finally:
        root.handlers, root.level = handlers, level
        structlog.configure(**configured)
    return Ran(int(ended.value.code or 0), out.getvalue(), err.getvalue())
