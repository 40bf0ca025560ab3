"""Runs: one run from settings to outcome, its folder, its certificate, and checking that again."""
