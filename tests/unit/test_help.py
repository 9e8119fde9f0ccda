"""Help pages: examples that parse, panels, exit codes; and how much --quiet and --verbose print."""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from k8sdds.cli import terminal
from k8sdds.cli.app import command_tree
from k8sdds.system.errors import EXIT_CODES, K8sddsError
from tests.commands import K8SDDS
from tests.conftest import Command

ROOT = Path(__file__).parents[2]
TREE = command_tree()


def leaves(command: Any, path: tuple[str, ...] = ()) -> dict[str, Any]:
    """Map each command without sub-commands to its object."""
    below = getattr(command, "commands", None)
    if below is None:
        return {" ".join(path): command}
    return {name: leaf for key, sub in below.items() for name, leaf in leaves(sub, (*path, key)).items()}


LEAVES = leaves(TREE)


def examples(command: Any) -> list[str]:
    return [line.replace(r"\[", "[") for line in (command.epilog or "").splitlines()[1:]]


def parse(argv: list[str]) -> tuple[str, Any]:
    """Parse a command line as the command does, without running it; return the command's path and context."""
    command, context, path = TREE, TREE.make_context("k8sdds", argv), []
    while hasattr(command, "commands"):
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, rest, parent=context)
        path.append(name)
    return " ".join(path), context


@pytest.mark.parametrize("path", LEAVES)
def test_every_help_page_ends_with_examples_that_parse(path: str) -> None:
    lines = examples(LEAVES[path])
    assert 1 <= len(lines) <= 3
    for line in lines:
        assert len(line) <= 78, "would be wrapped on a terminal of 80 columns"
        program, *argv = shlex.split(line)
        assert (program, parse(argv)[0]) == ("k8sdds", path)


@pytest.mark.parametrize("path", LEAVES)
def test_every_option_is_explained_and_values_have_names(path: str) -> None:
    command = LEAVES[path]
    assert command.help
    for param in (*command.params, command.get_help_option(TREE.make_context("k8sdds", ["list"]))):
        assert getattr(param, "help", None), f"{path}: {param.name}"
        if getattr(param, "is_flag", False):
            assert param.metavar == "", f"{path}: {param.name}"
        elif param.name not in ("form", "key"):  # their choices are shown
            assert re.search("[A-Z]", param.metavar or ""), f"{path}: {param.name}"


def test_every_command_is_in_a_panel() -> None:
    panels = dict.fromkeys(command.rich_help_panel for command in TREE.commands.values())
    assert list(panels) == ["Start here", "Measure", "Analyze", "Cluster", "Lab", "Package"]


def test_the_exit_codes_of_all_errors_are_in_the_help_and_in_the_documentation(k8sdds: Command) -> None:
    codes = {error.exit_code for error in K8sddsError.__subclasses__()}
    assert codes | {0, 70} == set(EXIT_CODES)
    help_page = k8sdds("--help").stdout
    documented = "\n".join(path.read_text() for path in (ROOT / "docs").rglob("*.md"))
    for code, meaning in EXIT_CODES.items():
        assert re.search(rf"{code} +{re.escape(meaning)}", help_page)
        assert f"| {code} | {meaning} |" in documented


def on_a_terminal(*args: str, **environment: str) -> str:
    """Run the command with stdout on a terminal and return what it printed."""
    parent, child = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color", **environment}
    process = subprocess.Popen([str(K8SDDS), *args], stdout=child, stderr=child, env=env)
    os.close(child)
    output = b""
    while True:
        try:
            block = os.read(parent, 65536)
        except OSError:  # EIO: everything is read
            break
        if not block:
            break
        output += block
    os.close(parent)
    process.wait(timeout=60)
    return output.decode()


@pytest.mark.parametrize(
    ("args", "message", "command"),
    [
        ("lst", "no such command 'lst'. Did you mean 'list'?", ""),
        ("list network", "invalid value for 'KIND': 'network' is not one of 'experiments', 'applications'", " list"),
        (
            "init",
            "missing argument 'KIND'. Choose from: experiment, application, link, profile, qos, rights",
            " init",
        ),
        ("nodes exec", "missing argument 'NODE'", " nodes exec"),
        ("run a b", "unexpected extra argument", " run"),
    ],
)  # fmt: skip
def test_mistakes_of_usage_look_like_other_errors(
    k8sdds: Command, args: str, message: str, command: str
) -> None:
    done = k8sdds(*args.split())
    what, remedy = done.stderr.splitlines()
    assert (done.returncode, done.stdout, remedy) == (2, "", f"  → see: k8sdds{command} --help")
    assert what.startswith("k8sdds: ") and message in what


def test_documentation_is_text_in_a_pipe_and_formatted_on_a_terminal(k8sdds: Command) -> None:
    page = (ROOT / "docs" / "reference" / "qos.md").read_text()
    assert k8sdds("docs", "qos").stdout.strip() == page.strip()
    formatted = on_a_terminal("docs", "qos", PAGER="cat")
    assert "QoS" in formatted and "\x1b[" in formatted and "# QoS" not in formatted
    assert "how-to/applications" in k8sdds("docs").stdout
    unknown = k8sdds("docs", "reports")
    assert unknown.returncode == 2 and "did you mean 'report'?" in unknown.stderr
    assert "read one that contains it: " in k8sdds("docs", "latex").stderr
    bundle = k8sdds("docs", "bundle")
    assert bundle.stdout.startswith("# Bundle") and "k8sdds docs reference/commands/bundle" in bundle.stderr


COLOR = re.compile(r"\x1b\[[0-9;]*(?<![0-9])(3[0-8]|4[0-8]|9[0-7]|10[0-7])(?![0-9])[0-9;]*m")


def test_no_color_and_pipes(k8sdds: Command) -> None:
    for args in (("--help",), ("list", "networks"), ("show", "no-such-experiment")):
        done = k8sdds(*args)
        assert "\x1b" not in done.stdout + done.stderr
    assert COLOR.search(on_a_terminal("--help"))
    assert not COLOR.search(on_a_terminal("--help", NO_COLOR="1"))


def test_quiet_prints_only_results(k8sdds: Command) -> None:
    testbed, hint = k8sdds("testbed").stdout.splitlines()
    assert "To change it: " in hint
    for args in (("testbed", "-q"), ("-q", "testbed")):
        assert k8sdds(*args).stdout.splitlines() == [testbed]
    wrong = k8sdds("-q", "show", "no-such-experiment")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "there is no experiment" in wrong.stderr


def test_verbose_prints_commands_and_causes(
    k8sdds: Command, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for verbosity, printed in (
        (terminal.Verbosity.NORMAL, ""),
        (terminal.Verbosity.VERBOSE, "+ true\n+ ssh pi1 'exec sh -s'\n"),
    ):
        terminal.set_verbosity(verbosity)
        try:
            subprocess.run(["true"], check=True)
            sys.audit("k8sdds.ssh", "pi1", "exec sh -s")
        finally:
            terminal.set_verbosity(terminal.Verbosity.NORMAL)
        assert capfd.readouterr().err == printed
    missing = str(tmp_path / "missing.yaml")
    assert "caused by FileNotFoundError" in k8sdds("-v", "show", missing).stderr
    assert "caused by" not in k8sdds("show", missing).stderr


def test_no_error_is_a_traceback(k8sdds: Command) -> None:
    for args in (["show"], ["run", "x" * 300], ["report", "/proc/self/mem"], ["-v", "no-such-command"]):
        done = k8sdds(*args)
        assert done.returncode == 2, done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("k8sdds sho", {"show"}),
        ("k8sdds run multicast-1", {"multicast-12sub"}),
        ("k8sdds show best", {"best-effort"}),
        ("k8sdds run quickstart --network kube", {"kube-router"}),
        ("k8sdds run quickstart --set payl", {"payload_bytes="}),
        ("k8sdds lab gr", {"graph"}),
        ("k8sdds run no-such", set()),
    ],
)
def test_completion_offers_names(
    k8sdds: Command, monkeypatch: pytest.MonkeyPatch, line: str, offered: set[str]
) -> None:
    """With the environment of the call that bash makes."""
    monkeypatch.setenv("_K8SDDS_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))
    done = k8sdds()
    assert (done.returncode, set(done.stdout.split()), done.stderr) == (0, offered, "")
