"""Schedules that are declared in files or on functions, and kept in Redis by `plan` and `apply`.

documents   what a file holds, and on which line      yaml_text, toml_text   text → document
entries     a document → schedules                    files                  a file or a folder → schedules
decorator   @schedule, and running such a function    modules                module[:attr] → schedules
crontab     a crontab → schedules                     load                   any of them → a `DeclaredSet`
apply       what would change, and making it so
"""

from timerq.declare.declared import Declared, DeclaredSet
from timerq.declare.decorator import ScheduledFunction, schedule
from timerq.declare.load import load
from timerq.declare.modules import scheduled_functions

__all__ = ["Declared", "DeclaredSet", "ScheduledFunction", "load", "schedule", "scheduled_functions"]
