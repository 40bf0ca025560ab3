"""What all tests share: processes that tests start may keep what they compiled, so that each starts fast."""

import os

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
