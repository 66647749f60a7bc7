import pytest

from gradverify.cli.output import Terminal, is_watched, look

SCREEN, PIPE = Terminal(True, 93, "utf-8"), Terminal(False, None, "utf-8")


@pytest.mark.parametrize(
    "environ, color",
    [
        ({}, True),
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": ""}, True),
        ({"CI": "true"}, False),
        ({"PRE_COMMIT": "1"}, False),
        ({"TERM": "dumb"}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"CI": "1", "FORCE_COLOR": "1"}, True),
        ({"CI": "false"}, True),
    ],
)
def test_colour_on_a_terminal(environ, color):
    assert look(SCREEN, environ).color is color and look(SCREEN, environ).boxes


@pytest.mark.parametrize(
    "asked, environ, color, boxes",
    [
        ("auto", {}, False, False),
        ("auto", {"FORCE_COLOR": "1"}, True, True),
        ("always", {"NO_COLOR": "1", "CI": "1"}, True, True),
        ("never", {"FORCE_COLOR": "1"}, False, False),
        ("auto", {"FORCE_COLOR": "0"}, False, False),
    ],
)
def test_colour_in_a_pipe(asked, environ, color, boxes):
    shown = look(PIPE, environ, color=asked)
    assert (shown.color, shown.boxes) == (color, boxes)


def test_colour_never_goes_into_the_plain_format():
    assert not look(SCREEN, {}, format="plain", color="always").color


@pytest.mark.parametrize(
    "screen, environ, asked, width",
    [
        (PIPE, {}, None, 120),
        (SCREEN, {}, None, 93),
        (SCREEN, {"COLUMNS": "77"}, None, 77),
        (PIPE, {"COLUMNS": "77"}, 64, 64),
        (PIPE, {"COLUMNS": "wide"}, None, 120),
        (PIPE, {"COLUMNS": "0"}, None, 120),
        (PIPE, {"CI": "1"}, None, 120),
    ],
)
def test_width(screen, environ, asked, width):
    assert look(screen, environ, given_width=asked).width == width


@pytest.mark.parametrize(
    "screen, environ, asked, format, wraps",
    [
        (PIPE, {}, None, None, False),
        (PIPE, {"COLUMNS": "0"}, None, None, False),
        (PIPE, {"COLUMNS": "77"}, None, None, True),
        (PIPE, {}, 80, None, True),
        (SCREEN, {}, None, "plain", True),
        (PIPE, {}, None, "table", True),
    ],
)
def test_sentences_wrap_in_frames_and_where_the_width_is_known(
    screen, environ, asked, format, wraps
):
    assert look(screen, environ, given_width=asked, format=format).wrap is wraps


@pytest.mark.parametrize(
    "encoding, ascii_only",
    [
        ("utf-8", False),
        ("UTF8", False),
        ("ascii", True),
        ("ANSI_X3.4-1968", True),
        ("cp1252", True),
    ],
)
def test_only_unicode_encodings_get_unicode_frames(encoding, ascii_only):
    assert look(Terminal(False, None, encoding), {}).ascii is ascii_only


@pytest.mark.parametrize(
    "screen, environ, watched",
    [
        (SCREEN, {}, True),
        (PIPE, {}, False),
        (SCREEN, {"CI": "1"}, False),
        (SCREEN, {"PRE_COMMIT": "1"}, False),
        (SCREEN, {"TERM": "dumb"}, False),
        (PIPE, {"FORCE_COLOR": "1"}, False),
        (SCREEN, {"NO_COLOR": "1"}, False),
        (SCREEN, {"NO_COLOR": ""}, True),
    ],
)
def test_animation_is_for_a_person_alone(screen, environ, watched):
    assert is_watched(screen, environ) is watched
