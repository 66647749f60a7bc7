"""The set-up of a worker process, in a process of its own."""

import subprocess
import sys

LIMITED = """
import resource
from gradverify.running.worker import Setup, _divide
resource.setrlimit(resource.RLIMIT_DATA, (4 << 30, {hard} << 30))
_divide(Setup(".", {{}}, (), None, {memory} << 30))
print([each >> 30 for each in resource.getrlimit(resource.RLIMIT_DATA)])
"""


def limits(hard, memory):
    return subprocess.run([sys.executable, "-c", LIMITED.format(hard=hard, memory=memory)], capture_output=True, text=True, timeout=120).stdout


def test_a_limit_of_memory_is_kept_to_where_a_lower_one_is_there_already():
    """Raising that is not allowed: a worker that tried would end before its first check, which would look like a fault of gradverify's."""
    assert limits(hard=6, memory=8) == "[6, 6]\n"
    assert limits(hard=6, memory=5) == "[5, 5]\n"
