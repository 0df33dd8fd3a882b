"""Runs a target under atheris, and reads and writes the kept corpus."""

import hashlib
import importlib
import shlex
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final

targets: Final = ("strict_parse", "canonicalize", "pipeline")
corpus: Final = Path(__file__).parent / "corpus"
dictionary: Final = corpus / "json.dict"
"""Tokens that the fuzzer puts in and exchanges."""
available: Final = find_spec("atheris") is not None
"""Whether the fuzzer is installed: it has wheels for Linux on x86-64 only."""
settings: Final = ("-timeout=10", "-rss_limit_mb=1024", "-max_len=16384", f"-dict={dictionary}")
"""Seconds and MiB that one input may take, bytes that it may have."""
instrumented: Final = ("contracts", "services.authority.admit", "tests.fuzz", "rfc8785")
"""What the fuzzer sees the branches of."""
imported_anew: Final = ("contracts", "services", "tests", "rfc8785")


def fuzz(target: str) -> None:
    """Fuzz as the command line says (libFuzzer's options); never returns. What is imported already comes in anew."""
    if not available:
        sys.exit("atheris is not installed; it has wheels for Linux on x86-64 and Python before 3.15")
    import atheris  # noqa: PLC0415 - not everywhere

    for name in [name for name in sys.modules if name.partition(".")[0] in imported_anew]:
        del sys.modules[name]
    with atheris.instrument_imports(include=list(instrumented)):
        check = check_of(target)
    given = {argument.partition("=")[0] for argument in sys.argv}
    # A merge starts the program of the first argument again, through a shell.
    program = f"{shlex.quote(sys.executable)} -m tests.fuzz.{target}"
    defaults = (each for each in settings if each.partition("=")[0] not in given)
    atheris.Setup([program, *sys.argv[1:], *defaults], check)
    atheris.Fuzz()


def check_of(target: str) -> Callable[[bytes], None]:
    """The function of a target that raises for an input that breaks a promise."""
    check: Callable[[bytes], None] = importlib.import_module(f"tests.fuzz.{target}").check
    return check


def kept_inputs(target: str) -> list[Path]:
    """The files of the kept corpus."""
    return sorted((corpus / target).iterdir())


def write_seeds(target: str) -> int:
    """Add the target's seeds to its corpus, named by their hashes as libFuzzer does; how many there are."""
    folder = corpus / target
    folder.mkdir(parents=True, exist_ok=True)
    made = set(importlib.import_module(f"tests.fuzz.{target}").seeds())
    for data in made:
        (folder / hashlib.sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)
    return len(made)


if __name__ == "__main__":
    for name in targets:
        sys.stdout.write(f"{write_seeds(name)} seeds of {name}\n")
