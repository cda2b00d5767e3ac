"""Show the values of failed assertions in the table of cases, too."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("cases")
