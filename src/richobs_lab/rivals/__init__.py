"""Learners to compare with, one a file: published methods, and tools that some of them share."""
