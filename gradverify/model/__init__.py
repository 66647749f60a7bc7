"""The data passed between the stages: frozen dataclasses, without torch and NumPy."""
