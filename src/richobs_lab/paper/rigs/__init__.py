"""What statements are measured on: nodes and worlds at the edge of what is promised, and onlookers."""
