"""The command line: a file for each command or pair of commands; only `output.py` writes, and only
`boundary.py` exits."""
