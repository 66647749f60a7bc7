"""The Jacobian element by element: finite differences along input coordinates, or along groups of them that no output shares."""
