"""What came of each (input, output) pair: its elements as they are streamed, and their
statistics."""
