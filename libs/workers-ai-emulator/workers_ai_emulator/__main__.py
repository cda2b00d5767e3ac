"""``python -m workers_ai_emulator``."""

import sys

from workers_ai_emulator.cli import main

sys.exit(main())
