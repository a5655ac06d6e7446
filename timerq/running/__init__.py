"""Everything in one process: dispatcher, consumer and declared schedules, started and stopped together.

run        Running: for an event loop      start      Started: for a program without one
lifespan   Running as an ASGI server wants it
schedules  what is to be started           now        one tick, run here and waited for
"""

from timerq.running.lifespan import lifespan
from timerq.running.now import fire_now
from timerq.running.run import Running, run
from timerq.running.schedules import Schedules
from timerq.running.start import Started, start

__all__ = ["Running", "Schedules", "Started", "fire_now", "lifespan", "run", "start"]
