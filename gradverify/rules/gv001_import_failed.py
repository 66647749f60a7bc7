"""GV001 import-failed: the function, an input, or what it is compared with, cannot be imported or made

What. A name in the spec (`function`, `reference`, `gradient`, `surrogate`, `make`, `inputs_from`, `import`) cannot be imported, has no such
attribute or is nothing that can be checked, or an input cannot be made: a shape too large to allocate, a tensor whose elements cannot be moved.

Why it matters. Nothing was checked. The check is an error (exit code 3), never a pass; the other checks run.

How it is measured. The `path:` entries, the spec's folder, the project's (with pyproject.toml) and the current one are importable. The message names
the key of the spec, what was looked for and the nearest names; what your module raised is shown with your own frames.

How to repair. Correct the name, add the folder to `path:`, or install what the module needs into the environment that runs gradverify.

Example.
    checks:
      - function: my_ops:Swihs          # my_ops has Swish
        inputs: {x: {shape: [3]}}
"""

VERDICT = "error"
STOPS = True
