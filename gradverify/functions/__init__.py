"""The built-in autograd Functions by theme. Imports nothing, so that catalogue.py does not
import torch."""
