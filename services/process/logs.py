"""Structured logs: one JSON object per line on stderr, with the correlation ID of what is being worked on.

Standard output stays free for results (OPS-2). Library loggers (broker client, pool, HTTP server) take the same way.
"""

import logging
import sys
from collections.abc import MutableMapping
from contextvars import ContextVar, Token
from typing import Any, Final

import structlog
from structlog.typing import FilteringBoundLogger, Processor

_correlation: Final[ContextVar[str | None]] = ContextVar("correlation", default=None)


def _add_correlation(_log: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    correlation_id = _correlation.get()
    if correlation_id is not None:
        event.setdefault("correlation_id", correlation_id)
    return event


_SHARED: Final[tuple[Processor, ...]] = (
    structlog.contextvars.merge_contextvars,
    _add_correlation,
    structlog.processors.add_log_level,
    structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
    structlog.processors.StackInfoRenderer(),
    structlog.processors.format_exc_info,
)
_QUIET: Final = ("uvicorn", "asyncio", "psycopg.pool")
"""Libraries whose notices below a warning tell an operator nothing."""


def configure_logs(service: str, level: str = "info") -> None:
    """Send all logs of this process to stderr as JSON lines. `level` is one of `settings.log_levels`."""
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*_SHARED, structlog.stdlib.ExtraAdder()],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(default=str),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(number)
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(number, logging.WARNING))
    structlog.contextvars.bind_contextvars(service=service)


def get_log(name: str) -> FilteringBoundLogger:
    """The logger of one module, usually `get_log(__name__)`. Usable before `configure_logs`."""
    log: FilteringBoundLogger = structlog.get_logger(name, module=name)
    return log


class bind_correlation:  # noqa: N801 - used as a verb: `with bind_correlation(…):`
    """Put the correlation ID (a Command's Action ID, an Event ID) on every log line inside the block.

    Entered for every Command: it costs one context variable and nothing more until a line is really written.
    """

    __slots__ = ("_correlation_id", "_token")

    def __init__(self, correlation_id: str) -> None:
        self._correlation_id = correlation_id
        self._token: Token[str | None]

    def __enter__(self) -> None:
        self._token = _correlation.set(self._correlation_id)

    def __exit__(self, *_error: object) -> None:
        _correlation.reset(self._token)
