"""Floor 2: derivatives with an error bar and the verdict over them. Tensors and plain callables; no spec, rule or Function."""
