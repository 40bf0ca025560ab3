"""What policies are worth, whoever learned them: the value of one, the better of two, the best of many."""
