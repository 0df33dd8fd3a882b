"""Structured logs: one JSON object per line on stderr, with the correlation ID of what is being worked on.

Standard output stays free for results (OPS-2). Library loggers (broker client, pool, HTTP server) take the same way.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import structlog
from structlog.typing import FilteringBoundLogger, Processor

_SHARED: Final[tuple[Processor, ...]] = (
    structlog.contextvars.merge_contextvars,
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


@contextmanager
def bind_correlation(correlation_id: str, **facts: Any) -> Iterator[None]:
    """Put the correlation ID (a Command's Action ID, an Event ID) and facts on every log line inside the block."""
    with structlog.contextvars.bound_contextvars(correlation_id=correlation_id, **facts):
        yield
