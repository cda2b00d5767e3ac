"""Rewrite the assertions of the cases, so that failures show values."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("cases")
