"""gradverify checks hand-written autograd backwards against finite differences, element by element."""

__version__ = "0.1.0"
