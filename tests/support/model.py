"""What timerq must do, as plain Python: dictionaries and loops, one class for one partition.

It knows what each verb does to the stored state and what it answers, and renders that state as the keys that Redis must
hold. Times are milliseconds of a manual clock. Outcomes are tuples that begin with a status word. Every calendar here
is a grid: its slots lie ``every`` ms apart.

Its rooms, each upon the one before it: words, store, arming, editing, firing, groups.
"""

from __future__ import annotations

from tests.support.model_groups import Handling


class ModelPartition(Handling):
    """One partition."""
