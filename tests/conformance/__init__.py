"""Suites that everything registered must pass: one file per registry."""
