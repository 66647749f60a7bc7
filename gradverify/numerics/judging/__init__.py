"""What elements of the Jacobian are judged with in every mode: lines to move along, samples, what
is known of outputs, verdicts."""
