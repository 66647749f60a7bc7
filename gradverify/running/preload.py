"""What workers need, imported once in the process that they are forked from: torch and gradverify itself, never a user's module."""

from __future__ import annotations

import importlib
import pkgutil

import gradverify.rules
import gradverify.verify

for _module in pkgutil.iter_modules(gradverify.rules.__path__):
    importlib.import_module(f"gradverify.rules.{_module.name}")
