"""`python -m gradverify` and the console script. Imports nothing at its top, because worker
processes run this module again."""


def main() -> None:
    """Run the command line and exit."""
    _without_this_folder()
    from gradverify.cli.boundary import main as run_and_exit

    run_and_exit()


def _without_this_folder() -> None:
    """Remove the current folder from `sys.path`, where `python -m` and an empty entry put it, as a
    `json.py` in it would replace Python's. Specs find their modules in it all the same. It is kept
    if gradverify itself is in it."""
    import os
    import sys

    ours = os.path.realpath(os.path.dirname(os.path.dirname(__file__)))  # noqa: PTH120 - pathlib is not imported yet
    try:
        here = os.path.realpath(os.curdir)
    except OSError:  # the folder is gone
        return
    if here != ours:
        sys.path[:] = [
            place
            for place in sys.path
            if not isinstance(place, str) or os.path.realpath(place) != here
        ]


if __name__ == "__main__":
    main()
