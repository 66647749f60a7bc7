"""Inputs that a function accepts, found by trying: what `gradverify init` writes."""
