"""What people write. YAML text to a document, to validated checks, to cases; no torch, no numpy."""
