"""The built-in autograd Functions by theme. Imports nothing: catalogue.py knows them without
torch."""
