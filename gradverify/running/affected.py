"""Which checks a change affects: by their spec, by what their functions import, by the files they name. Nothing of anybody's is imported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gradverify.functions.catalogue import BUILTINS
from gradverify.running.changes import Changes
from gradverify.source.globs import matches
from gradverify.source.graph import Graph, Imported

if TYPE_CHECKING:
    from gradverify.model.case import Case


@dataclass(frozen=True, slots=True)
class Needs:
    """What a check is made of. `folders` come first on the path while it runs; `targets` are names of functions, `modules` of modules; `files` are
    absolute; `globs` are relative to `folder`, the spec's."""

    spec: str
    folder: str
    folders: tuple[str, ...]
    targets: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    globs: tuple[str, ...] = ()


@dataclass
class Effects:
    """What the changes do to one check after the other."""

    changes: Changes
    graph: Graph = field(init=False)

    def __post_init__(self) -> None:
        self.graph = Graph(self.changes.gone)

    def on(self, needs: Needs) -> str | None:
        """Why a check is affected, in words; None where it is not."""
        if not self.changes.files:
            return None
        if self.changes.project:
            return f"[tool.gradverify] of {self.changes.project} changed"
        if self.changes.hit([needs.spec]):
            return "its spec changed"
        named = self.changes.hit(needs.files) or self._by_globs(needs)
        return f"names {named}" if named else self._by_imports(needs)

    def _by_globs(self, needs: Needs) -> str | None:
        return next((shown for file, shown in self.changes.files.items() for glob in needs.globs if matches(glob, needs.folder, file)), None)

    def _by_imports(self, needs: Needs) -> str | None:
        reach = self.graph.of(needs.targets, needs.modules, needs.folders)
        hit = self.changes.hit(sorted(reach.files)) or next(self._named(reach), None)
        if hit:
            return f"imports {hit}"
        return next((f"imports {Path(file).name}, and what that loads cannot be told" for file in sorted(reach.unread)), None)

    def _named(self, reach: Imported) -> Iterator[str]:
        """Changed files with the name of a module that is imported and found nowhere: the code may put their folder on the path, or had it."""
        for name in sorted(reach.missing):
            ends = tuple(f"/{name.replace('.', '/')}{end}" for end in (".py", "/__init__.py"))
            yield from (shown for file, shown in self.changes.files.items() if Path(file).as_posix().endswith(ends))


def reasons(cases: Sequence[Case], changes: Changes, cwd: Path) -> Mapping[str, str]:
    """Ids of the affected cases, in their order, each with the reason."""
    effects = Effects(changes)
    found = ((case.id, effects.on(needs_of(case, cwd))) for case in cases)
    return {name: why for name, why in found if why is not None}


def needs_of(case: Case, cwd: Path) -> Needs:
    oracles, builtin = case.oracles, {name: f"{known.module}:{known.attribute}" for name, known in BUILTINS.items()}
    recipes = [recipe for argument in (*case.inputs, *case.keywords) for recipe in argument.recipes]
    made = [str(recipe.arguments) for recipe in recipes if recipe.draw == "make"]
    targets = [target for target in (case.target, case.inputs_from, oracles.reference, oracles.gradient, oracles.surrogate, *made) if target]
    files = tuple(str(recipe.arguments).rpartition("#")[0] or str(recipe.arguments) for recipe in recipes if recipe.draw == "file")
    return Needs(str(cwd / case.spec.path), case.search.folder, (*case.search.path, case.search.folder, str(cwd)),
                 tuple(builtin.get(target, target) for target in targets), case.search.imports, files, case.sources)
