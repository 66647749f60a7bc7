"""JSON Lines while a run goes on: each event on stdout, where that is its format, and in every report file of that kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from gradverify.cli.output import Output, begin
from gradverify.model.event import Event
from gradverify.model.report import Gate, Report
from gradverify.report.formats import lines
from gradverify.report.names import inert


class Lines:
    """`out`: None where stdout carries another format. The files are begun at once: of two runs that write to one path each has a file of its own."""

    def __init__(self, out: Output | None, paths: Sequence[Path], version: str) -> None:
        self.out, self.version = out, version
        self._line, self._last = lines("jsonl")
        self.failures: list[str] = []
        self._files: dict[Path, TextIO] = {}
        for path in paths:
            try:
                self._files[path] = begin(path)
            except OSError as error:
                self._failed(path, error)

    def told(self, events: Iterable[Event], gate: Gate) -> Iterator[Event]:
        """The events, unchanged."""
        for event in events:
            if self.out or self._files:
                self._write(self._line(event, gate, self.version))
            yield event

    def end(self, report: Report) -> list[str]:
        """The last line. A sentence for each file that could not be written."""
        if self.out or self._files:
            self._write(self._last(report))
        for path, file in self._files.items():
            try:
                file.close()
            except OSError as error:
                self._failed(path, error)
        return self.failures

    def _write(self, line: str) -> None:
        """Files first: whoever reads stdout may be gone. A file may be stdout as well."""
        line = inert(line)
        for path, file in list(self._files.items()):
            try:
                file.write(line)
                file.flush()
            except OSError as error:
                del self._files[path]
                self._failed(path, error)
        if self.out:
            self.out.write(line)

    def _failed(self, path: Path, error: OSError) -> None:
        self.failures.append(f"{path} could not be written: {error.strerror or error}")
