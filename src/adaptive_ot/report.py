"""Write report pages from Python; `adaptive-ot report` and `--report` do the same."""

from adaptive_ot.workbench.report import write_report

__all__ = ["write_report"]
