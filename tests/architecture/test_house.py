"""The house: rooms, arrows between them, where transactions open, how long things get, and what code may not say."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

root = Path(__file__).parents[2]
rooms = ("contracts", "services", "outbox_relay", "projections", "ops")
module_lines_max = 400
function_lines_max = 70

transaction_files = {
    # file: why a transaction opens there
    "services/authority/accept_transition.py": "the accepting transaction",
    "services/authority/write_batch.py": "its writes and commit",
    "services/authority/shard_leases.py": "taking and renewing shard leases",
    "services/authority/examine_history.py": "one server's word about its logs, whatever stands between",
    "services/authority/serve_replay.py": "one consistent page",
    "services/authority/serve_acknowledgement.py": "moving an acknowledged position",
    "services/authority/serve_session.py": "consuming a challenge",
    "services/authority/serve_keys.py": "keys as of one moment, under the lock of whoever changes them",
    "outbox_relay/relay_lease.py": "taking and renewing a relay's lease",
    "projections/apply_event.py": "the applying transaction",
    "projections/copy_skips.py": "a replay passes over what its original does",
    "projections/watch_quarantine.py": "letting a Group be tried again",
    "projections/fill_gap.py": "settling what is known of a head; beginning a Group anew",
    "projections/repairs.py": "forgetting a Group of which nothing was applied",
    "projections/settle_fork.py": "recording a fork with the reset of its Group",
    "projections/store/sqlite.py": "the store that it runs on",
    "projections/store/postgres.py": "the other store",
    "ops/init.py": "creating an Organization",
    "ops/verify/verify_keys.py": "the registry and its history as of one moment",
}
opens_transaction = re.compile(
    r"""\.transaction\(|\.(?:commit|rollback)\(\)|["'](?:BEGIN|COMMIT|ROLLBACK)\b""",
)
forbidden_names = {"utils", "util", "helpers", "helper", "misc", "manager", "managers", "base", "stuff", "tools"}
pure_rooms = ("contracts/",)
pure_files = re.compile(r"^services/authority/decide|^services/authority/decision|^projections/consumer\.py$")
impure_modules = {
    "asyncio", "datetime.now", "nats", "os", "psycopg", "random", "secrets", "socket", "sqlite3", "subprocess",
    "threading", "time", "uuid",
}  # fmt: skip


def product_files() -> list[Path]:
    """Python files of the product, tests left out."""
    return sorted(path for room in rooms for path in (root / room).rglob("*.py"))


def name_of(path: Path) -> str:
    """A path as it is read in the checkout."""
    return path.relative_to(root).as_posix()


def functions_of(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """All functions of a module, nested ones too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def test_the_top_level_holds_only_what_it_should() -> None:
    """The names at the top level are fixed."""
    allowed = {
        *rooms, "tests", "pyproject.toml", "Makefile", "README.md", "LICENSE", "requirements.lock",
    }  # fmt: skip
    visible = {path.name for path in root.iterdir() if not path.name.startswith(".")}
    generated = {name for name in visible if name.endswith(".egg-info") or name in {"build", "dist"}}
    assert visible - generated <= allowed


@pytest.mark.parametrize("path", product_files(), ids=name_of)
def test_modules_and_functions_stay_short(path: Path) -> None:
    """A module stays under 400 lines, a function under 70; a module that is one table of data may be longer."""
    text = path.read_text()
    assert len(text.splitlines()) <= module_lines_max, f"{name_of(path)} is too long: split it by verb"
    for function in functions_of(ast.parse(text)):
        length = (function.end_lineno or 0) - function.lineno + 1
        assert length <= function_lines_max, f"{name_of(path)}:{function.name} has {length} lines"


@pytest.mark.parametrize("path", product_files(), ids=name_of)
def test_no_room_is_named_for_nothing(path: Path) -> None:
    """Rooms and files are named for what they do."""
    assert not forbidden_names & {part.removesuffix(".py") for part in path.relative_to(root).parts}


@pytest.mark.parametrize("path", product_files(), ids=name_of)
def test_transactions_open_only_in_their_verb_files(path: Path) -> None:
    """One transaction, one file named for its verb; nowhere else opens, commits or rolls back one."""
    if name_of(path) not in transaction_files:
        found = opens_transaction.search(path.read_text())
        assert found is None, f"{name_of(path)} opens or ends a transaction: {found and found.group()}"


def test_the_list_of_transaction_files_is_true() -> None:
    """A file that no longer opens a transaction leaves the list."""
    for name in transaction_files:
        assert (root / name).exists(), f"{name} is listed but does not exist"
        assert opens_transaction.search((root / name).read_text()), f"{name} is listed but opens no transaction"


@pytest.mark.parametrize("path", product_files(), ids=name_of)
def test_sql_lives_in_sql_files(path: Path) -> None:
    """No SQL text in Python."""
    sql = re.compile(
        r"\b(?:SELECT\s.+\sFROM|INSERT\s+INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|CREATE\s+TABLE)\b", re.DOTALL
    )
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert not sql.search(node.value), f"{name_of(path)}:{node.lineno} holds SQL; move it to a .sql file"


@pytest.mark.parametrize("path", product_files(), ids=name_of)
def test_pure_code_imports_nothing_impure(path: Path) -> None:
    """Contracts and decisions know no clock, no randomness and no IO."""
    name = name_of(path)
    if not name.startswith(pure_rooms) and not pure_files.match(name):
        return
    for node in ast.walk(ast.parse(path.read_text())):
        modules = (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        impure = {module.split(".")[0] for module in modules} & impure_modules
        assert not impure, f"{name}:{node.lineno} imports {sorted(impure)}"


def test_every_statement_is_used() -> None:
    """A statement that no code names is a leftover."""
    for folder in sorted(path for room in rooms for path in (root / room).rglob("sql") if path.is_dir()):
        code = "\n".join(path.read_text() for path in folder.parent.rglob("*.py"))
        for statement in folder.rglob("*.sql"):
            assert re.search(rf"\b{statement.stem}\b", code), f"{name_of(statement)} is used by nothing"


def test_the_project_speaks_of_itself_alone() -> None:
    """No machine's paths, no registry's names, no leftovers of how the work was organised."""
    forbidden = re.compile(r"/work/|/root/|\.library|pypi\.org|files\.pythonhosted|TODO|FIXME|XXX")
    texts = [
        path for path in root.rglob("*") if path.suffix in {".py", ".sql", ".md", ".toml", ".lock", ".sh", ".json"}
    ]
    skipped = {
        ".venv",
        ".git",
        ".weavehold",
        ".mypy_cache",
        ".ruff_cache",
        ".pytest_cache",
        ".hypothesis",
        "node_modules",
    }
    for path in texts:
        if skipped & set(path.relative_to(root).parts) or path == Path(__file__):
            continue
        found = forbidden.search(path.read_text(errors="replace"))
        assert found is None, f"{name_of(path)} says {found and found.group()!r}"


def test_the_lock_is_complete_and_names_no_address() -> None:
    """RULE-31: every requirement has hashes, nothing in the lock says where to download from, the backend is in it."""
    text = (root / "requirements.lock").read_text()
    assert "://" not in text
    assert not re.search(r"^\s*--(?!hash=sha256:)", text, re.MULTILINE)
    requirements = [block for block in re.split(r"\n(?=\S)", text.strip()) if not block.startswith("#")]
    assert len(requirements) > 40
    for requirement in requirements:
        assert re.match(r"[a-z0-9.-]+(?:\[[a-z,]+\])?==\S+", requirement), requirement[:80]
        assert "--hash=sha256:" in requirement, requirement[:80]
    assert any(requirement.startswith("hatchling==") for requirement in requirements)
