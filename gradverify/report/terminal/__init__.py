"""The text for a person, one view per file. `view.py` combines them; `canvas.py` renders them as
text."""
