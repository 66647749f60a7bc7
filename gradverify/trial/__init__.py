"""Find inputs that a function accepts by trial, for the specs that `gradverify init` writes."""
