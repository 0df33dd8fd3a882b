"""Key files: whole or not at all, and no private key left beside them, whatever ends the writer (RULE-29, TRU-2)."""

import subprocess
import sys
from pathlib import Path

import pytest

from contracts.documents.common import Actor, ActorType
from contracts.signature import SigningKey
from ops.command_fault import CommandFault
from ops.durable_file import remove_drafts
from ops.folder_lock import alone_in
from ops.init import write_key_file
from ops.keys import write_key
from ops.keys.write_key import make_or_take_up, make_or_take_up_in_turn

ada = Actor(type=ActorType.HUMAN, id="urn:weavehold:human:ada")
killed_when_synced = "os.fsync = lambda descriptor: os.kill(os.getpid(), 9)"
killed_when_linked = "link = os.link; os.link = lambda *names: (link(*names), os.kill(os.getpid(), 9))"
full_disk = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))"


def writer(prepared: str, call: str) -> subprocess.CompletedProcess[str]:
    """A process that prepares its end and writes a key."""
    text = (
        f"import os, pathlib; {prepared}\n"
        "from contracts.signature import SigningKey; from ops.init import write_key_file\n"
        "from ops.keys.write_key import make_or_take_up; from tests.integration.test_key_files import ada\n"
        f"{call}"
    )
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("prepared", [killed_when_synced, killed_when_linked])
def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path: Path, prepared: str) -> None:
    """RULE-29: a private key lies in no file but its own; other files, though of alike names, stay."""
    file = tmp_path / "ada.json"
    stranger = tmp_path / ".ada.json.next.0123456789abcdef.new"
    stranger.write_text("another file's")
    assert writer(prepared, f"make_or_take_up(pathlib.Path({str(file)!r}), ada)").returncode == -9
    drafts = {each.name for each in tmp_path.iterdir()} - {file.name, stranger.name}
    assert len(drafts) == 1
    key, made = make_or_take_up(file, ada)
    assert made is (prepared == killed_when_synced)
    assert SigningKey.from_file(file).key_id == key.key_id
    assert {*tmp_path.iterdir()} == {file, stranger}
    assert file.stat().st_nlink == 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("make_or_take_up(pathlib.Path({!r}), ada)", "CommandFault: the key file {} cannot be written: File too large"),
        ("write_key_file(pathlib.Path({!r}), SigningKey.generate(ada))", "File too large"),
    ],
)
def test_a_full_disk_leaves_nothing(tmp_path: Path, call: str, words: str) -> None:
    """RULE-29: the writer that fails takes its draft away itself."""
    file = tmp_path / "ada.json"
    ended = writer(full_disk, call.format(str(file)))
    assert (ended.returncode, words.format(file) in ended.stderr) == (1, True), ended
    assert [*tmp_path.iterdir()] == []


def test_an_interrupted_replacement_changes_nothing(tmp_path: Path) -> None:
    """RULE-29: the key in place stays whole, and the draft of the other one goes with the next look."""
    file = tmp_path / "ada.json"
    write_key_file(file, SigningKey.generate(ada))
    before = file.read_bytes()
    call = f"write_key_file(pathlib.Path({str(file)!r}), SigningKey.generate(ada))"
    assert writer(killed_when_synced, call).returncode == -9
    assert len([*tmp_path.iterdir()]) == 2
    remove_drafts(file)
    assert ([*tmp_path.iterdir()], file.read_bytes()) == ([file], before)


def test_a_new_key_waits_for_whoever_is_at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRU-2: nobody removes the draft of a writer that is still at work."""
    monkeypatch.setattr(write_key, "folder_wait_seconds", 0.1)
    file = tmp_path / "keys" / "ada.json"
    file.parent.mkdir()
    with alone_in(file.parent), pytest.raises(CommandFault, match="somebody has been at work"):
        make_or_take_up_in_turn(file, ada)
    assert [*file.parent.iterdir()] == []
    assert make_or_take_up_in_turn(file, ada).key_id == SigningKey.from_file(file).key_id
