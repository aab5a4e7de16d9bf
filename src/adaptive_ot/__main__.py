"""``python -m adaptive_ot`` is ``adaptive-ot``."""

import sys

from adaptive_ot.workbench.cli import main

sys.exit(main())
