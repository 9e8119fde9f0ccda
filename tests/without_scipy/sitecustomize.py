"""Commands that tests start have no scipy, as those of users, who install k8sdds without it.

Only tests and benchmarks need it. seaborn would import it for each report, which takes longer than drawing the figures.
"""

import sys

sys.modules["scipy"] = None  # type: ignore[assignment]
