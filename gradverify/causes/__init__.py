"""The pattern of mismatches → the known mistake that explains all of them. Imports nothing."""
