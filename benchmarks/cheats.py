"""All cheats of tests/hostile/cheats.py and their right twins under `gradverify check`.

    PYTHONPATH=.:tests python benchmarks/cheats.py [NAME ...]

A line for each: the verdicts and codes of both. Exits with 1 if a cheat passes or a twin is wrong.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from commands import SQUARES, checks, codes, here, spec
from hostile.cheats import CHEATS, REFERENCE, entry


def run(names: list[str]) -> int:
    """Print the table, and return the exit code."""
    lines = []
    for name in names:
        pair = CHEATS[name]
        for kind, text in (("cheat", pair.cheat), ("twin", pair.twin)):
            Path(f"{kind}_{name}.py").write_text(SQUARES + text)
            lines.append(entry(f"{kind} {name}", f"{kind}_{name}.py", pair.check))
    Path("ref.py").write_text(REFERENCE)
    Path("s.yaml").write_text(spec(*lines))
    exit_code, _, stderr = here("check", "s.yaml", "-q", "--report", "json:r.json")
    found = checks(Path("r.json"))
    passed = accused = 0
    for name in names:
        cheat, twin = found[f"cheat {name}"], found[f"twin {name}"]
        passed += cheat["verdict"] == "pass"
        accused += twin["verdict"] != "pass"
        shown = [
            f"{each['verdict']} {' '.join(sorted(set(codes(each))))}" for each in (cheat, twin)
        ]
        print(f"{name:20} {shown[0]:36} {shown[1]}")
    print(f"{len(names)} cheats: {passed} passed; {len(names)} twins: {accused} did not pass")
    print(f"exit code {exit_code}; stderr of {len(stderr.splitlines())} lines")
    return int(bool(passed or accused))


if __name__ == "__main__":
    chosen = sys.argv[1:] or list(CHEATS)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["CI"] = ""
        sys.exit(run(chosen))
