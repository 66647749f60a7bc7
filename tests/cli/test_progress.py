import io
import time

from gradverify.cli.check import followed
from gradverify.cli.progress import LONG, PATIENCE, Progress
from gradverify.model.event import CheckFinished, CheckStarted, Plan, RunFinished, RunStarted


class Recorder:
    def __init__(self):
        self.calls = []

    def begin(self, total):
        self.calls.append(("begin", total))

    def wait(self, text):
        self.calls.append("wait")

    def show(self, name):
        self.calls.append(("show", name))

    def ended(self, name):
        self.calls.append(("ended", name))

    def clear(self):
        self.calls.append("clear")


def test_progress_is_taken_away_before_a_line_is_printed():
    from factories import ENVIRONMENT, passing

    recorder, result = Recorder(), passing()
    events = [
        RunStarted("", (), None, ENVIRONMENT, 1),
        CheckStarted(result.id, result.name),
        CheckFinished(result),
        RunFinished(0.1),
    ]
    seen = followed(events, recorder, lambda event: recorder.calls.append(type(event).__name__))
    assert seen == events
    assert recorder.calls == [
        "wait",
        "clear",
        "RunStarted",
        ("begin", 1),
        "clear",
        "CheckStarted",
        ("show", "linear"),
        "clear",
        "CheckFinished",
        ("ended", "linear"),
        "clear",
        "RunFinished",
        "clear",
    ]


def test_progress_names_the_check_its_place_and_its_time():
    stream = io.StringIO()
    progress = Progress(stream)
    progress.begin(7)
    progress.show("op[a=1] :fire:")
    deadline = time.monotonic() + 20
    while "op[a=1] :fire:" not in stream.getvalue() and time.monotonic() < deadline:
        time.sleep(PATIENCE / 4)
    progress.clear()
    assert "1 of 7  op[a=1] :fire:  0." in stream.getvalue()


def long_plan(seconds=720.0):
    return Plan("columns", 6000, 2, seconds, 3 << 29)


def test_a_long_comparison_is_announced_once_in_a_line_that_stays():
    notes = io.StringIO()
    progress = Progress(None, notes)
    progress.show("softmax")
    progress.planned(long_plan())
    progress.clear()
    assert notes.getvalue() == (
        "softmax: comparing columns takes 6,000 forward and 2 backward calls, about 12 min and "
        "1.5 GiB\n"
    )


def test_a_short_comparison_is_not_announced_nor_a_long_one_where_nobody_wants_notes():
    notes = io.StringIO()
    Progress(None, notes).planned(long_plan(LONG))
    Progress(None, None).planned(long_plan())
    assert notes.getvalue() == ""
