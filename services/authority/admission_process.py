"""One admission process: batches of Command bytes on stdin, what admission says of them on stdout.

    python -m services.authority.admission_process ORGANIZATION_ID      (WEAVEHOLD_DATABASE_URL in the environment)

Frames are pickles after their length in four bytes. Only the authority that started the process speaks to it, and the
process ends with it: a closed pipe is the end, whoever closed it and however.
"""

import os
import pickle
import signal
import sys
from typing import Any, BinaryIO, Final

from services.authority.admit import admit_batch
from services.authority.key_cache import SynchronousKeyResolver
from services.process.logs import configure_logs

length_bytes: Final = 4


def encode_frame(value: Any) -> bytes:
    """A value as one frame."""
    body = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    return len(body).to_bytes(length_bytes) + body


def _read_frame(source: BinaryIO) -> Any:
    """The next frame; None at the end."""
    header = source.read(length_bytes)
    if len(header) < length_bytes:
        return None
    return pickle.loads(source.read(int.from_bytes(header)))  # noqa: S301 - from the process that started this one


def main() -> None:
    """Serve batches until the pipe is closed."""
    # Ctrl-C reaches the whole terminal; the authority decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    configure_logs("admission", "warning")
    keys = SynchronousKeyResolver(os.environ["WEAVEHOLD_DATABASE_URL"], sys.argv[1])
    while (asked := _read_frame(sys.stdin.buffer)) is not None:
        raws, registry_version = asked
        keys.at_least(registry_version)
        sys.stdout.buffer.write(encode_frame(admit_batch(raws, keys)))
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
