"""Make a new consumer in a checkout: its package, its test, its entry in the listing. All of it, or nothing.

The listing comes last: until then nothing uses the new files, and whatever fails takes them away again. What a kill in
between leaves is a package that nothing lists; the next call names it.
"""

import itertools
import shutil
import stat
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Final

from msgspec import Struct

from ops.durable_file import replace_durably
from ops.scaffold.consumer_name import class_name_of, fault_of_name
from ops.scaffold.list_consumer import ListingUnknown, with_consumer

listing_file: Final = Path("projections/listing.py")

_templates: Final = files("ops.scaffold") / "templates"


class ConsumerNotMade(Exception):
    """The consumer cannot be made, and nothing was changed. The message names what stands in the way and the remedy."""


class Made(Struct, frozen=True):
    """A new consumer; `files` are relative to the checkout, those that are new first, the listing last."""

    name: str
    class_name: str
    files: tuple[Path, ...]


def make_consumer(name: str, checkout: Path) -> Made:
    """Make the consumer `name`. Raises ConsumerNotMade, and OSError for a disk that does not take it."""
    if (fault := fault_of_name(name)) is not None:
        raise ConsumerNotMade(f"a consumer cannot be called {name!r}: {fault}")
    class_name = class_name_of(name)
    listing = _listing_with(checkout, name, class_name)
    package, test = checkout / "projections" / name, checkout / "tests" / "unit" / f"test_{name}.py"
    for taken in (package, package.with_suffix(".py"), test):
        if taken.exists():
            raise ConsumerNotMade(f"there is {taken} already; choose another name, or remove what has this one")
    texts = _texts(name, class_name)
    try:
        for file, text in texts.items():
            (checkout / file).parent.mkdir(parents=True, exist_ok=True)
            (checkout / file).write_text(text, encoding="utf-8")
        path = checkout / listing_file
        replace_durably(path, listing.encode(), mode=stat.S_IMODE(path.stat().st_mode))
    except BaseException:
        shutil.rmtree(package, ignore_errors=True)
        test.unlink(missing_ok=True)
        raise
    return Made(name, class_name, (*texts, listing_file))


def _listing_with(checkout: Path, name: str, class_name: str) -> str:
    """The new text of the listing. Raises ConsumerNotMade."""
    path = checkout / listing_file
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as fault:
        raise ConsumerNotMade(
            f"{path} cannot be read ({fault.strerror}); run it in a checkout of Weavehold, or name one with --directory"
        ) from fault
    try:
        return with_consumer(text, name, class_name)
    except ListingUnknown as fault:
        raise ConsumerNotMade(
            f"{path} is not as `consumer new` knows it, {fault}; mend it, or bring back what git has: "
            f"git checkout -- {listing_file}"
        ) from fault


def _texts(name: str, class_name: str) -> Mapping[Path, str]:
    """The new files, relative to the checkout, with their texts."""
    package = Path("projections") / name
    named = {
        package / "__init__.py": "package.py",
        package / "consumer.py": "consumer.py",
        package / "read_kinds.py": "read_kinds.py",
        package / "sql" / f"create_{name}_kind.sql": "create.sql",
        package / "sql" / "count_kind.sql": "count_kind.sql",
        package / "sql" / "read_kinds.sql": "read_kinds.sql",
        Path("tests") / "unit" / f"test_{name}.py": "test.py",
    }
    return {file: _filled(template, name, class_name) for file, template in named.items()}


def _filled(template: str, name: str, class_name: str) -> str:
    """A template's text; its imports stand in their order whatever the name is."""
    text = (_templates / f"{template}.template").read_text(encoding="utf-8")
    lines = Template(text).substitute(name=name, class_name=class_name).splitlines()
    runs = itertools.groupby(lines, key=lambda line: line.startswith("from "))
    ordered = (sorted(run, key=_imported_module) if imports else run for imports, run in runs)
    return "\n".join(itertools.chain.from_iterable(ordered)) + "\n"


def _imported_module(line: str) -> str:
    return line.split()[1]
