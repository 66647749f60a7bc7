"""The command line. A file for each command or close pair; `output.py` alone writes, `boundary.py`
alone exits."""
