from __future__ import annotations

import pytest
from live import Oracles, Search, case, codes, message, tensor

from gradverify.running.inline import run_case


@pytest.mark.parametrize(("changes", "said"), [
    ({"target": "nowhere_at_all:f"}, "function: nowhere_at_all:f: there is no module 'nowhere_at_all'"),
    ({"target": "torch:sinn"}, "has no attribute 'sinn'"),
    ({"target": "torch:pi"}, "is of type float, not an autograd Function"),
    ({"oracles": Oracles(reference="nowhere_at_all:f")}, "reference: nowhere_at_all:f"),
    ({"oracles": Oracles(gradient="nowhere_at_all:f")}, "gradient: nowhere_at_all:f"),
    ({"inputs_from": "nowhere_at_all:f"}, "inputs_from: nowhere_at_all:f"),
    ({"search": Search(imports=("nowhere_at_all",))}, "import: nowhere_at_all"),
    ({"inputs": (tensor(10**6, 10**6, 10**6),)}, "making the tensor"),
])
def test_what_cannot_be_had_is_named_by_its_key_and_costs_this_check_alone(changes, said):
    result = run_case(case(**{"target": "torch:sin", "inputs": (tensor(2),), **changes}))
    assert (result.verdict, codes(result)) == ("error", {"GV001"})
    assert said in message(result, "GV001")
    assert result.reason == message(result, "GV001")
    assert result.findings[0].name == "import-failed"


def test_what_is_there_has_no_such_finding():
    assert codes(run_case(case("torch:sin", (tensor(2),), oracles=Oracles(reference="torch:sin")))) == set()
