"""Everything in one process: dispatcher, consumer and declared schedules, started and stopped together.

block      Running: for as long as a block lasts    beside     Started: in threads beside a program
web        Running as the lifespan of a server
schedules  what is to be started                    now        one tick, run here and waited for
"""

from timerq.running.beside import Started, start
from timerq.running.block import Running, run
from timerq.running.now import fire_now
from timerq.running.schedules import Schedules
from timerq.running.web import lifespan

__all__ = ["Running", "Schedules", "Started", "fire_now", "lifespan", "run", "start"]
