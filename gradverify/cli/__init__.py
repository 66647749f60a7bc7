"""The command line. One file per command; `output.py` alone writes, `boundary.py` alone exits."""
