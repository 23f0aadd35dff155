"""Settings for the whole suite."""

from __future__ import annotations

import os

from hypothesis import settings

# In CI the same examples every time: a failure there is the change's own. Elsewhere new ones are tried.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("default", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "default")
