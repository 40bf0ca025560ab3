"""Moments of classes on a device of PyTorch, for learners whose tests rest on moments."""

from richobs_lab.device.classes import OnDevice

__all__ = ["OnDevice"]
