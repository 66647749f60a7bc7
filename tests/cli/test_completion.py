"""`PATH::NAME<TAB>`: what each shell asks, and what it inserts. Names hold what shells cut, quote or expand, so each real shell is asked too.

bash cuts words at `:` and `=`; who answers whole words there writes the path twice.
"""

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time

import pytest

from gradverify.cli.completion import ids, join_words

CHECKS = """gradverify: 1
checks:
  - {name: two words, function: "nowhere:f", inputs: {x: {shape: [4]}}}
  - {name: "it's $HOME", function: relu, inputs: {input: {shape: [4]}}}
  - {name: mat, function: relu, inputs: {input: {shape: [$rows]}}, matrix: {rows: [1, 7]}}
  - {name: größe, function: relu, inputs: {input: {shape: [4]}}}
"""
NAMES = ["two words", "it's $HOME", "mat", "mat[rows=1]", "mat[rows=7]", "größe"]


@pytest.fixture
def odd(folder):
    (folder / "specs").mkdir()
    (folder / "specs" / "odd.yaml").write_text(CHECKS)
    return "specs/odd.yaml"


@pytest.fixture
def bash(gradverify, monkeypatch, capsys):
    """What typer prints for bash, which it does by itself."""
    def call(*words):
        monkeypatch.setenv("_GRADVERIFY_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", "\n".join(("gradverify", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        code, _, err = gradverify()
        assert (code, err) == (0, "")
        return capsys.readouterr().out.split()

    return call


@pytest.mark.parametrize("command", ["check", "list", "validate", "explain", "mutate"])
def test_bash_gets_what_stands_behind_the_colons(bash, odd, command):
    quoted = ["two\\", "words", "it\\'s\\", "\\$HOME", "mat", "mat\\[rows=1\\]", "mat\\[rows=7\\]", "größe"]
    assert bash(command, odd, "::") == quoted
    assert command == "explain" or bash(command, "other.yaml", odd, "::", "") == quoted
    assert bash(command, odd, "::", "ma") == quoted[4:7] and bash(command, odd, "::", "nothing") == []


def test_bash_cuts_at_the_equals_sign_too(bash, odd):
    assert bash("check", odd, "::", "mat\\[rows", "=") == ["1\\]", "7\\]"]
    assert bash("check", odd, "::", "mat[rows", "=", "7") == ["7\\]"]
    assert bash("check", odd, "::", "mat", odd, "::", "g") == ["größe"]


def test_bash_takes_an_open_quote_as_one_word(bash, odd):
    assert bash("check", f"'{odd}::tw") == [f"{odd}::two", "words"] and bash("check", f'"{odd}::mat[rows=7') == [f"{odd}::mat[rows=7]"]


def test_a_folder_an_absolute_path_and_a_home_stay_as_typed(bash, odd, folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder))
    assert bash("check", "specs", "::", "g") == bash("check", f"{folder}/{odd}", "::", "g") == bash("check", f"~/{odd}", "::", "g") == ["größe"]


def test_everything_else_is_completed_by_typer(bash, odd):
    assert "--exit-zero" in bash("check", "--exit") and bash("val") == ["validate"]


@pytest.mark.parametrize("text", ["", "gradverify: 1\nchecks: 7\n", "{", "\0", "gradverify: 1\nchecks: [{function: no_such, inputs: {}}]\n", None])
def test_specs_with_problems_complete_to_nothing_and_say_nothing(bash, folder, text):
    if text is not None:
        (folder / "s.yaml").write_text(text)
    assert bash("check", "s.yaml", "::") == []


@pytest.mark.parametrize("variables", [{}, {"COMP_WORDS": "gradverify\ncheck"}, {"COMP_WORDS": "gradverify", "COMP_CWORD": "7"}, {"COMP_CWORD": "x"}])
def test_a_shell_that_says_less_is_left_to_typer(variables):
    before = dict(variables)
    join_words(variables)
    assert variables == before


def test_fish_and_zsh_get_whole_ids(odd, monkeypatch):
    monkeypatch.delenv("_GRADVERIFY_COMPLETE", raising=False)
    assert ids(f"{odd}::") == [f"{odd}::{name}" for name in NAMES] and ids(f"{odd}::nothing") == ids(odd) == []


def test_completion_imports_neither_torch_nor_what_is_checked(odd, folder):
    script = ("import sys; from gradverify.cli.boundary import run; from gradverify.cli.output import Output\n"
              "code = run(Output(())); assert not {'torch', 'numpy', 'nowhere'} & set(sys.modules); sys.exit(code)")
    variables = {"_GRADVERIFY_COMPLETE": "complete_bash", "COMP_WORDS": f"gradverify\ncheck\n{odd}\n::\ntw", "COMP_CWORD": "4"}
    done = subprocess.run([sys.executable, "-c", script], env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "two\\ words", "")


ARGS = "args() { printf '<%s>' \"$@\"; echo .; }"
SHELLS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], ARGS, 'eval "$(_GRADVERIFY_COMPLETE=source_bash gradverify)"'),
    "zsh": (["zsh", "-f", "-i"], ARGS,
            'autoload -Uz compinit; compinit -u -D; eval "$(_GRADVERIFY_COMPLETE=source_zsh gradverify)"'),
    "fish": (["fish", "--no-config", "-i"], "function args; printf '<%s>' $argv; echo .; end",
             "env _GRADVERIFY_COMPLETE=source_fish gradverify | source")}


class Terminal:
    """A shell at a terminal, and what it shows."""

    def __init__(self, shell, folder):
        (folder / "bin").mkdir()
        program = folder / "bin" / "gradverify"
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m gradverify "$@"\n')
        program.chmod(0o755)
        self.command, *self.first = SHELLS[shell]
        child, self.screen = pty.fork()
        if child == 0:
            os.environ.update(PATH=f"{program.parent}:{os.environ['PATH']}", TERM="xterm", COLUMNS="200", LC_ALL="C.UTF-8", INPUTRC=os.devnull)
            os.execvp(self.command[0], self.command)
        self.child = child
        for number, line in enumerate(self.first):
            self.type(f"{line}; echo ready'{number}'\r", f"ready{number}")

    def type(self, text, until):
        """Types, and reads until the pattern is on the screen."""
        os.write(self.screen, text.encode())
        seen, end = "", time.monotonic() + 60
        while not re.search(until, seen) and time.monotonic() < end:
            if select.select([self.screen], [], [], 0.2)[0]:
                seen += os.read(self.screen, 65536).decode(errors="replace")
                for asked, answer in (("\x1b[c", "\x1b[?1;2c"), ("\x1b[0c", "\x1b[?1;2c"), ("\x1b[6n", "\x1b[1;1R")):
                    if asked in seen:
                        seen = seen.replace(asked, "")
                        os.write(self.screen, answer.encode())
        return seen

    def completed(self, text, end):
        """The words that the program would get once TAB has completed `text` to something that ends so."""
        self.type(f"{text}\t", re.escape(end))
        seen = self.type("\x01args \x05\r", r"<gradverify>.*>\.\s")
        return re.findall(r"<(.*?)>", seen[seen.rindex("<gradverify>"):])

    def close(self):
        os.close(self.screen)
        os.waitpid(self.child, 0)


@pytest.mark.parametrize("shell", SHELLS)
def test_a_real_shell_inserts_the_name(odd, folder, shell):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    terminal = Terminal(shell, folder)
    try:
        assert terminal.completed(f"gradverify check {odd}::tw", "words") == ["gradverify", "check", f"{odd}::two words"]
        assert terminal.completed(f"gradverify list {odd} {odd}::it", "HOME") == ["gradverify", "list", odd, f"{odd}::it's $HOME"]
        assert terminal.completed(f"gradverify check {odd}::mat\\[rows=7", "]") == ["gradverify", "check", f"{odd}::mat[rows=7]"]
    finally:
        terminal.close()
