"""Reasons why a mismatch may be none: each a function of what is known (`Run`) and of the elements
as they were judged."""
