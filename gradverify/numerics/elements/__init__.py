"""Elements of the Jacobian: the lines that they are measured along, what is known while they are judged, and how they are judged."""
