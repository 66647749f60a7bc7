import io
import time

from gradverify.cli.progress import PATIENCE, Progress
from gradverify.cli.watch import watched
from gradverify.model.event import CheckFinished, CheckStarted, RunFinished, RunStarted
from gradverify.model.report import Gate


class Recorder:
    def __init__(self):
        self.calls = []

    def begin(self, total):
        self.calls.append(("begin", total))

    def wait(self, text):
        self.calls.append("wait")

    def show(self, name):
        self.calls.append(("show", name))

    def clear(self):
        self.calls.append("clear")


def test_progress_is_taken_away_before_a_line_is_printed():
    from factories import ENVIRONMENT, passing

    recorder, result = Recorder(), passing()
    events = [RunStarted("", (), None, ENVIRONMENT, 1), CheckStarted(result.id, result.name), CheckFinished(result), RunFinished(0.1)]
    seen = list(watched(events, Gate(), recorder, lambda judged: recorder.calls.append(("line", judged.ok))))
    assert seen == events
    assert recorder.calls == ["wait", "clear", ("begin", 1), "clear", ("show", "linear"), "clear", ("line", True), "clear", "clear"]


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


def test_without_a_stream_nothing_is_drawn():
    progress = Progress(None)
    progress.show("x")
    progress.clear()
    assert progress.done == 1 and progress._live is None
