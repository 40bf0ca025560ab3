"""Attacks on richobs: kills and power cuts, forged files, hostile inputs, broken promises; each a command with a table."""
