"""The mode `entries`, every element of the Jacobian: finite differences along columns, or along
groups of them that no output shares."""
