"""Cases become events. Nothing here imports torch, except `inline` when a check runs."""
