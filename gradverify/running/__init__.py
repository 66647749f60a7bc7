"""Run cases and yield events. Nothing here imports torch, except `inline` when a check runs."""
