"""Specs: from YAML text to a document, to validated checks, to cases; without torch and NumPy."""
