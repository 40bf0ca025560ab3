"""Worlds of the laboratory, one per file; entry points make them known."""
