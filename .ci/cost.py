"""The ten slowest test files of a JUnit report, and the CPU time between two outputs of bash's
`times`: python cost.py REPORT BEFORE AFTER

Exits with 1 where that is twice what they cost when this was set: a limit that catches a doubling.
CPU time, as a machine that stalls costs none.
"""

import re
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

MOST = 2300  # seconds


def spent(file: str) -> float:
    """User and system time of all processes that were started and have ended: the second line, as
    in `1m2.5s 0m3.1s`."""
    parts = re.findall(r"(\d+)m([\d.]+)s", Path(file).read_text().splitlines()[1])
    return sum(60 * int(minutes) + float(seconds) for minutes, seconds in parts)


if __name__ == "__main__":
    report, before, after = sys.argv[1:]
    files = Counter[str]()
    for case in ElementTree.parse(report).iter("testcase"):
        files[case.get("classname", "")] += float(case.get("time", 0))
    for name, seconds in files.most_common(10):
        print(f"{seconds:8.1f} s  {name}")
    cpu = spent(after) - spent(before)
    print(f"the tests took {cpu:.0f} s of CPU time, of {MOST} that are allowed")
    sys.exit(cpu > MOST)
