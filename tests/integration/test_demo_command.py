"""`weavehold demo` as a person runs it: what it refuses, and how it says so."""

import json
import subprocess
import sys

from tests.agent_rig import mission_text


def demo(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "ops.cli", "demo", *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def test_a_bad_file_ends_with_2_and_names_file_line_and_remedy(tmp_path):
    """OPS-2: exit 2 before anything is started, with one JSON object when asked."""
    path = tmp_path / "bad.toml"
    path.write_text('format = 1\n[mission]\nname = "x"\ncordinator = "y"\n')
    ended = demo(str(path))
    assert ended.returncode == 2
    assert f"{path}:4: unknown key 'cordinator' in mission. Did you mean 'coordinator'?" in ended.stderr
    assert ended.stdout == ""
    ended = demo(str(path), "--json")
    assert ended.returncode == 2
    assert json.loads(ended.stdout)["fault"].startswith(f"{path}:4: ")


def test_files_that_disagree_about_an_agent_end_with_2(tmp_path):
    """OPS-2: the same name in two files is the same Agent."""
    (tmp_path / "one.toml").write_text(mission_text)
    (tmp_path / "two.toml").write_text(mission_text.replace('name = "ada"\n', 'name = "ada"\nslots = 3\n'))
    ended = demo(str(tmp_path / "one.toml"), str(tmp_path / "two.toml"))
    assert ended.returncode == 2
    assert "declare agent 'ada' differently" in ended.stderr


def test_the_help_says_what_it_does():
    ended = demo("--help")
    assert ended.returncode == 0
    assert "--keep" in ended.stdout
    assert "Examples" in ended.stdout
