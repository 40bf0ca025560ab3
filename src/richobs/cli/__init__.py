"""The command line, one command per file: each parses, calls and prints; nothing is computed here."""

from richobs.cli.main import main

__all__ = ["main"]
