"""The arena: learners against each other on the same worlds."""
