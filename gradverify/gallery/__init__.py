"""One fault per file, `Faulty`, beside its right twin, `Right`. Imports nothing."""
