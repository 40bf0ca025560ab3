"""The page and the figures that tell others what runs did, made from stored runs alone."""

from richobs.report.page import write_report

__all__ = ["write_report"]
