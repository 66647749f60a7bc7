import shlex

import pytest

from gradverify.report.reproduce import command


@pytest.mark.parametrize("argv, kept", [
    (["check"], []),
    (["check", "specs", "-k", "x", "-q", "--format", "json", "--report", "json:r.json"], []),
    (["check", "--eps", "1e-6", "a.yaml", "--atol=1e-4", "--strict"], ["--eps", "1e-6", "--atol=1e-4", "--strict"]),
    (["check", "--select", "GV1", "--ignore", "GV224", "--device", "cuda"], ["--select", "GV1", "--ignore", "GV224", "--device", "cuda"]),
    (["check", "--no-witness", "-q"], ["--no-witness"]), (["check", "--witness"], ["--witness"]),
    (["check", "--fail-on-skip", "-k", "skipped"], ["--fail-on-skip"]),
    (["check", "--undecided", "fail", "--require-device", "cuda"], ["--undecided", "fail", "--require-device", "cuda"]),
    (["check", "--eps"], ["--eps"]),
    (["check", "--", "--strict"], [])])
def test_only_what_changes_a_check_is_repeated(argv, kept):
    assert shlex.split(command("a.yaml::n", argv)) == ["gradverify", "check", "a.yaml::n", *kept]


@pytest.mark.parametrize("check_id", ["a.yaml::op[a=1]", "a b.yaml::it's", "a.yaml::$x `y`", "a.yaml::n!"])
def test_a_shell_reads_the_id_back(check_id):
    assert shlex.split(command(check_id, []))[2] == check_id
