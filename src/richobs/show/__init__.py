"""What people see of runs, made from events and stored runs alone: terminal, page, figures, TensorBoard."""

from richobs.show.page import write_report

__all__ = ["write_report"]
