"""The rules that vary the call, in order of worth: what a check leaves out, from the end, where its budget is spent.

All others are the comparison, its kin, and what the base call shows: they always run. A new rule that takes more than three calls belongs here.
"""

from __future__ import annotations

from gradverify.model.result import Calls

PRICES = {
    "GV213": Calls(0, 3), "GV227": Calls(0, 2), "GV113": Calls(9, 1), "GV207": Calls(2, 2), "GV208": Calls(1, 1), "GV209": Calls(1, 1),
    "GV215": Calls(1, 2), "GV218": Calls(2, 1), "GV220": Calls(1, 2), "GV211": Calls(1, 1), "GV210": Calls(0, 2), "GV206": Calls(0, 2),
    "GV223": Calls(9, 1), "GV108": Calls(2, 2), "GV110": Calls(6, 6), "GV226": Calls(1, 1), "GV225": Calls(2, 2), "GV214": Calls(1, 1),
    "GV229": Calls(3, 0), "GV228": Calls(0, 2), "GV109": Calls(7, 9),
}
"""By code, the calls that a rule takes at least (one input, one output, nothing wrong, samples halved): with fewer it says nothing."""
