"""The set-up of a worker process, in a process of its own."""

import sys

from commands import process

LIMITED = """
import resource
from gradverify.running.worker import Setup, _divide
for memory in (8, 5):
    resource.setrlimit(resource.RLIMIT_DATA, (4 << 30, 6 << 30))
    _divide(Setup(".", {}, (), None, memory << 30))
    print([each >> 30 for each in resource.getrlimit(resource.RLIMIT_DATA)])
"""


def test_a_limit_of_memory_is_kept_to_where_a_lower_one_is_there_already(tmp_path):
    """Raising that is not allowed: a worker that tried would end before its first check, which would look like a fault of gradverify's."""
    assert process(sys.executable, "-c", LIMITED, cwd=tmp_path).stdout == "[6, 6]\n[5, 5]\n"
