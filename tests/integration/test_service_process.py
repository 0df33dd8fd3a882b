"""A service process: structured logs, health endpoints, graceful bounded stop, loops whose death is seen (OPS-1)."""

import asyncio
import os
import signal
from pathlib import Path

from tests.service_rig import finish_file, start_service


async def test_a_service_is_live_and_ready_and_stops_when_asked(tmp_path: Path) -> None:
    """OPS-1: /livez, /readyz, /metrics; SIGTERM ends it with 0; OPS-2: logs on stderr, nothing on stdout."""
    with start_service(tmp_path, "works") as service:
        service.wait_logged("set_up")
        assert await service.ask("/livez") == (200, {"live": True})
        status, body = await service.ask("/readyz") or (0, {})
        assert (status, body["ready"]) == (200, True)
        assert body["dependencies"] == {"loop:work": {"state": "ready", "detail": ""}}
        service.child.send_signal(signal.SIGTERM)
        assert service.child.wait(60) == 0
        assert service.child.stdout is not None
        assert service.child.stdout.read() == b""
        logged = service.logged()
        started = next(line for line in logged if line["event"] == "started")
        assert started["service"] == "rig"
        assert "secret" not in str(started)
        assert next(line for line in logged if line["event"] == "set_up")["correlation_id"] == "urn:uuid:correlated"
        assert logged[-1]["event"] == "stopped"


async def test_a_service_that_waits_for_others_is_not_ready_and_ends_at_once(tmp_path: Path) -> None:
    """OPS-1: its broker is away, it has named no dependency yet; nothing was taken that would have to be finished."""
    with start_service(tmp_path, "waits-for-others", {"WEAVEHOLD_STOP_GRACE_SECONDS": "60"}) as service:
        service.wait_logged("set_up")
        assert (await service.ask("/livez") or (0,))[0] == 200
        answer = await service.ask("/readyz")
        assert answer is not None
        assert (answer[0], answer[1]["dependencies"]["process"]["detail"]) == (503, "the process is starting")
        service.child.terminate()
        assert await asyncio.to_thread(service.child.wait, 20) == 0


async def test_a_loop_that_dies_fails_readiness_and_ends_the_process(tmp_path: Path) -> None:
    """OPS-1: a dead loop is never hidden: not ready at once, the others finish, exit 1."""
    patient = {"WEAVEHOLD_STOP_GRACE_SECONDS": "600"}
    with start_service(tmp_path, "loop-raises-while-another-finishes", patient) as service:
        service.wait_logged("loop_failed")
        status, body = await service.ask("/readyz") or (0, {})
        assert status == 503
        assert "the loop met a fault" in body["dependencies"]["loop:work"]["detail"]
        assert await service.ask("/livez") == (200, {"live": True})
        (tmp_path / finish_file).touch()
        assert service.child.wait(60) == 1


def test_a_loop_that_returns_early_ends_the_process_too(tmp_path: Path) -> None:
    """OPS-1: a loop that merely stops turning is as dead as one that raised."""
    with start_service(tmp_path, "loop-returns") as service:
        assert service.child.wait(60) == 1
        assert "returned before" in service.log.read_text()


def test_the_stop_is_bounded(tmp_path: Path) -> None:
    """OPS-1: what ignores the request to stop is cancelled when the grace period is over; the exit code says so."""
    with start_service(tmp_path, "ignores-stop", {"WEAVEHOLD_STOP_GRACE_SECONDS": "0.5"}) as service:
        service.wait_logged("set_up")
        service.child.send_signal(signal.SIGTERM)
        # What ignores the request would wait for ever.
        assert service.child.wait(60) == 1
        assert "the grace period is over" in service.log.read_text()
        assert "stubborn" in service.log.read_text()


def test_a_second_signal_ends_the_grace_period(tmp_path: Path) -> None:
    """OPS-1: an operator who asks twice does not wait."""
    with start_service(tmp_path, "ignores-stop", {"WEAVEHOLD_STOP_GRACE_SECONDS": "600"}) as service:
        service.wait_logged("set_up")
        service.child.send_signal(signal.SIGINT)
        # Two signals at once are one.
        service.wait_logged("stopping")
        service.child.send_signal(signal.SIGINT)
        assert service.child.wait(60) == 1
        assert "second signal SIGINT" in service.log.read_text()


def test_a_service_stops_when_its_supervisor_is_gone(tmp_path: Path) -> None:
    """OPS-1: the pipe of a supervisor that was killed closes, and its services stop by themselves."""
    reading, writing = os.pipe()
    try:
        with start_service(tmp_path, "works", lifeline=reading) as service:
            service.wait_port()
            os.close(writing)
            assert service.child.wait(60) == 0
            assert "the supervisor is gone" in service.log.read_text()
    finally:
        os.close(reading)


def test_unusable_settings_exit_with_2(tmp_path: Path) -> None:
    """OPS-2: a usage error is 2, on stderr, with variable and remedy."""
    with start_service(tmp_path, "works", {"WEAVEHOLD_HEALTH_PORT": "99999"}) as service:
        assert service.child.wait(60) == 2
        assert "WEAVEHOLD_HEALTH_PORT is '99999'. Use an integer from 0 to 65535" in service.log.read_text()


def test_a_taken_health_port_exits_with_2(tmp_path: Path) -> None:
    """OPS-2: the message names the port and what to do."""
    (tmp_path / "second").mkdir()
    with start_service(tmp_path, "works") as first:
        port = str(first.wait_port())
        with start_service(tmp_path / "second", "works", {"WEAVEHOLD_HEALTH_PORT": port}) as second:
            assert second.child.wait(60) == 2
            assert f"127.0.0.1:{port} cannot be bound" in second.log.read_text()
