"""``python -m adaptive_ot.cli`` is ``adaptive-ot``."""

import sys

from adaptive_ot.cli import main

sys.exit(main())
