"""A document played from top to bottom in an empty folder: files written, commands run, everything
else read by the program it is for."""

from __future__ import annotations

import itertools
import json
import re
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml

from docs import terminal
from docs.snippets import PROMPT, Block, blocks, commands

HEAD = "gradverify: 1\n"
OF_A_CHECK = {"inputs", "inputs_from", "reference", "expected", "gradient", "init", "kwargs"}
SOME_OP = "function: my_ops:Op\n"
SOME_CHECK = "function: relu\ninputs: {input: {shape: [2]}}\n"
COUNT = re.compile(r"(?<!=)\b(\d[\d,]*)(?= calls\b)")
# By this share at most: how noisy a function's values are, and so how many steps it takes, is the
# processor's
COUNTS_DIFFER = 0.1
SETTLED = re.compile(r"[ ─]{2,}")
MAP_ROW = re.compile(r"\|[ .:\-=+*#%@]+\|")
VARYING = (
    # durations, and the blanks that line them up
    (re.compile(r"\s+\d+(?:\.\d+)? ?(?:s|min)\b"), " TIME"),
    # Rounding noise, which is the processor's
    (re.compile(r"±\S+"), "±BAR"),
    (
        re.compile(r"largest error \S+ absolute, \S+ relative|the nearest at \S+ of its tolerance"),
        "ROUNDING",
    ),
    (re.compile(r"torch \d+\.\d+\.\d+\S*"), "torch VERSION"),
    # A sentence under a check breaks elsewhere where its duration is longer
    (re.compile(r"\n {11}(?=\S)"), " "),
)


def settled(text: str, folder: Path) -> str:
    """Text without what differs from run to run and from machine to machine; blanks count only in
    error maps."""
    text = text.replace(str(folder.resolve()), "").replace(str(folder), "")
    for pattern, word in VARYING:
        text = pattern.sub(word, text)
    return "\n".join(
        line.rstrip() if MAP_ROW.search(line) else SETTLED.sub(" ", line).rstrip()
        for line in text.splitlines()
    )


def shows(printed: str, shown: str, folder: Path) -> bool:
    """Does a document show what was printed? Up to what varies, and up to a tenth of the calls."""
    one, other = settled(printed, folder), settled(shown, folder)
    counts, expected = (
        [int(number.replace(",", "")) for number in COUNT.findall(text)] for text in (one, other)
    )
    return COUNT.sub("N", one) == COUNT.sub("N", other) and all(
        abs(count - known) <= COUNTS_DIFFER * known
        for count, known in zip(counts, expected, strict=True)
    )


@dataclass
class Played:
    """What became of a document: its text with the outputs of this run, and everything that was not
    as it says."""

    folder: Path
    text: str
    faults: list[str] = field(default_factory=list)
    unused: dict[str, int] = field(default_factory=dict)
    exit: int = 0

    def block(self, block: Block) -> None:
        if block.file:
            self._write(block)
        reader = READERS.get(block.language)
        try:
            if reader is None:
                raise ValueError(f"nothing runs a block of {block.language or 'no language'}")
            reader(self, block)
        except Exception as error:
            self.faults.append(f"line {block.line}: {error}")

    def end(self) -> None:
        self.faults += [
            f"line {line}: no command uses {name} after it is written"
            for name, line in self.unused.items()
        ]

    def _write(self, block: Block) -> None:
        name = str(block.file)
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")
        # The same size and second as before would look unchanged
        for stale in path.parent.glob(f"__pycache__/{path.stem}.*"):
            stale.unlink()
        if name in self.unused:
            self.faults.append(
                f"line {self.unused[name]}: {name} is overwritten before a command uses it"
            )
        self.unused[name] = block.line

    def console(self, block: Block) -> None:
        played = "".join(
            self._command(command.line, command.shown, block) for command in commands(block)
        )
        self.text = self.text.replace(f"```console\n{block.text}```", f"```console\n{played}```", 1)

    def _command(self, line: str, shown: str, block: Block) -> str:
        self.exit, printed = terminal.run(line, self.folder, self.exit)
        printed = printed.replace(f"{self.folder.resolve()}/", "/project/")
        printed += "" if printed.endswith("\n") or not printed else "\n"
        self.unused = {name: at for name, at in self.unused.items() if not self._uses(line, name)}
        if shows(printed, shown, self.folder):
            return f"{PROMPT}{line}\n{shown}"
        self.faults.append(
            f"line {block.line}: `{line}` prints\n{printed}\nbut the document shows\n{shown}"
        )
        return f"{PROMPT}{line}\n{printed}"

    def _uses(self, line: str, name: str) -> bool:
        """Specs are used by commands that name them, their folder or nothing, and by scripts that
        do; a module by a command that imported it; configuration by all."""
        if name in line.split():
            return True
        # Nothing shows what was imported
        if name.endswith(".py") and sys.flags.dont_write_bytecode and "validate" not in line:
            return True
        if name.endswith(".py") and list(
            (self.folder / name).parent.glob(f"__pycache__/{Path(name).stem}.*")
        ):
            return True
        if not line.startswith(("gradverify", "pytest")):
            scripts = [self.folder / word for word in line.split() if word.endswith(".py")]
            return name in line or any(
                f'"{name.partition("/")[0]}' in script.read_text()
                for script in scripts
                if script.exists()
            )
        if name.endswith(".py"):
            return False
        places = [
            word.partition("::")[0].strip("'") for word in line.split()[2:] if "specs" in word
        ]
        return not name.startswith("specs/") or not places or name in places or "specs" in places

    def yaml(self, block: Block) -> None:
        data = yaml.safe_load(block.text)
        read = next(read for belongs, read in KINDS if belongs(data))
        read(self, block, data)

    def specification(self, block: Block, data: Any) -> None:
        if not block.file:
            self._validates(block.text)

    def fragment(self, block: Block, data: Any) -> None:
        """Part of a spec, completed to a whole one."""
        if isinstance(data, Mapping) and "checks" in data:
            self._validates(HEAD + block.text)
        elif isinstance(data, list):
            self._validates(f"{HEAD}checks:\n{block.text}")
        elif isinstance(data, Mapping):
            missing = (
                "" if "function" in data else SOME_OP if OF_A_CHECK & set(data) else SOME_CHECK
            )
            self._validates(f"{HEAD}checks:\n-\n{textwrap.indent(missing + block.text, '  ')}")
        else:
            raise ValueError(
                "a YAML block that is neither a spec, a part of one, a workflow nor a pre-commit "
                "file"
            )

    def _validates(self, text: str) -> None:
        path = self.folder / "snippet.gradverify.yaml"
        path.write_text(text, encoding="utf-8")
        self._passes(f"gradverify validate {path.name}")
        path.unlink()

    def workflow(self, block: Block, data: Any) -> None:
        """A GitHub workflow: sound by GitHub's schema, its steps name versions, and its gradverify
        commands pass for every value of its matrix."""
        path = self.folder / "workflow.yml"
        path.write_text(block.text, encoding="utf-8")
        self._passes(f"check-jsonschema --builtin-schema vendor.github-workflows {path.name}")
        path.unlink()
        steps = [
            (step, values)
            for job in data["jobs"].values()
            for step in job["steps"]
            for values in _matrix(job)
        ]
        assert all("@" in step["uses"] for step, _ in steps if "uses" in step), (
            "a step without a version"
        )
        acts = any("/gradverify@" in step.get("uses", "") for step, _ in steps)
        self._all_pass(
            [
                _filled(line, values)
                for step, values in steps
                for line in step.get("run", "").splitlines()
            ],
            block,
            acts,
        )

    def pipeline(self, block: Block, data: Any) -> None:
        """A GitLab pipeline."""
        self._all_pass(
            [
                line
                for job in data.values()
                if isinstance(job, Mapping)
                for line in job.get("script", ())
            ],
            block,
        )

    def groovy(self, block: Block) -> None:
        """A Jenkins pipeline."""
        self._all_pass(re.findall(r"^\s*sh '(.*)'$", block.text, re.MULTILINE), block)

    def _all_pass(self, lines: list[str], block: Block, acts: bool = False) -> None:
        """The gradverify commands among them, as they stand; `acts`: gradverify's own action runs
        it."""
        lines = [line for line in lines if "gradverify " in line]
        assert lines or acts, "a workflow that runs no gradverify"
        for line in lines:
            self._passes(f"CI=true {line}")
            self.unused = {
                name: at for name, at in self.unused.items() if not self._uses(line, name)
            }
        self.unused.pop(str(block.file), None)

    def hooks(self, block: Block, data: Any) -> None:
        path = self.folder / "pre-commit.yaml"
        path.write_text(block.text, encoding="utf-8")
        self._passes(
            f"pre-commit validate-{'config' if isinstance(data, Mapping) else 'manifest'} "
            f"{path.name}"
        )
        path.unlink()
        self.unused.pop(str(block.file), None)

    def _passes(self, line: str) -> None:
        code, printed = terminal.run(line, self.folder)
        assert code == 0, f"`{line}` exits with {code}:\n{printed}"

    def python(self, block: Block) -> None:
        """A file runs when a command imports it; a fragment has to be sound by itself."""
        if not block.file:
            exec(
                compile(block.text, "snippet", "exec"),
                {"torch": torch, "Function": torch.autograd.Function},
            )

    def toml(self, block: Block) -> None:
        if not block.file:
            raise ValueError("a TOML block needs a first line `# file: NAME`")

    def json(self, block: Block) -> None:
        json.loads(block.text)


def _matrix(job: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What each run of a job has in place of `matrix.NAME`."""
    axes = job.get("strategy", {}).get("matrix", {})
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def _filled(line: str, values: Mapping[str, Any]) -> str:
    return re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda found: str(values[found[1]]), line)


def is_spec(data: Any) -> bool:
    return isinstance(data, Mapping) and "gradverify" in data


def is_workflow(data: Any) -> bool:
    return isinstance(data, Mapping) and "jobs" in data


def is_pipeline(data: Any) -> bool:
    return isinstance(data, Mapping) and any(
        isinstance(job, Mapping) and "script" in job for job in data.values()
    )


def is_hooks(data: Any) -> bool:
    first = data[0] if isinstance(data, list) and data else None
    return (isinstance(data, Mapping) and "repos" in data) or (
        isinstance(first, Mapping) and "entry" in first
    )


Reader = Callable[[Played, Block], None]
READERS: Mapping[str, Reader] = {
    "console": Played.console,
    "yaml": Played.yaml,
    "python": Played.python,
    "toml": Played.toml,
    "json": Played.json,
    "groovy": Played.groovy,
}
KINDS = (
    (is_workflow, Played.workflow),
    (is_pipeline, Played.pipeline),
    (is_hooks, Played.hooks),
    (is_spec, Played.specification),
    (lambda data: True, Played.fragment),
)


def play(text: str, folder: Path) -> Played:
    """Plays every block of the document in order."""
    played = Played(folder, text)
    for block in blocks(text):
        played.block(block)
    played.end()
    return played
