"""What a person sees, one view per file. `view.py` puts them in order; `canvas.py` turns them into
text."""
