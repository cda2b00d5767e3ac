"""The rows of the table are plain modules beside the tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.register_assert_rewrite("cases")
sys.path.insert(0, str(Path(__file__).parent))
