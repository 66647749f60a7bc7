"""docs/rules.md is what the rules' own pages say. GRADVERIFY_UPDATE_GOLDEN=1 writes it anew."""

from __future__ import annotations

import os

from docs.rules_page import markdown
from docs.snippets import ROOT
from gradverify.rules.catalogue import rules

PAGE = ROOT / "docs" / "rules.md"


def test_the_committed_page_equals_the_generated_one():
    generated = markdown(rules())
    if os.environ.get("GRADVERIFY_UPDATE_GOLDEN") == "1":
        PAGE.write_text(generated, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == generated
