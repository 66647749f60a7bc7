"""What `gradverify schema` prints is a schema for a validator that editors and CI use: reports and
specs fit it, what is neither does not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from factories import everything, extreme

ROOT = Path(__file__).parents[2]
SPECS = sorted((ROOT / "specs").rglob("*.yaml"))


@pytest.fixture
def validated(gradverify, folder):
    """`validated(files, *arguments)`: exit code and output of check-jsonschema against what
    `gradverify schema ARGUMENTS` prints."""

    def validate(files, *arguments):
        (folder / "schema.json").write_text(gradverify("schema", *arguments)[1])
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "check_jsonschema",
                "--schemafile",
                "schema.json",
                *map(str, files),
            ],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return done.returncode, done.stdout + done.stderr

    return validate


def test_reports_fit_and_a_changed_one_does_not(gradverify, engine, spec, folder, validated):
    engine(*everything(), extreme(), interrupted=130)
    gradverify("check", "s.yaml", "--report", "json:r.json")
    assert validated(["r.json"], "--report")[0] == 0
    whole = json.loads((folder / "r.json").read_text())
    whole["checks"][0]["verdict"] = "passed"
    (folder / "r.json").write_text(json.dumps(whole))
    code, said = validated(["r.json"], "--report")
    assert code == 1 and "checks[0].verdict" in said


def test_a_report_of_an_earlier_version_fits_without_what_was_added(
    gradverify, engine, spec, folder, validated
):
    engine(*everything())
    gradverify("check", "s.yaml", "--report", "json:r.json")
    whole = json.loads((folder / "r.json").read_text())
    del whole["environment"]["folder"]
    (folder / "r.json").write_text(json.dumps(whole))
    assert validated(["r.json"], "--report")[0] == 0


def test_the_specs_of_this_repository_fit_and_a_slip_does_not(folder, validated):
    assert len(SPECS) > 10 and validated(SPECS)[0] == 0
    (folder / "slip.yaml").write_text(
        "gradverify: 1\nchecks:\n  - {functoin: add, inputs: {x: {shape: [2]}}}\n"
    )
    code, said = validated(["slip.yaml"])
    assert code == 1 and "functoin" in said
