"""Reads events for a group, runs handlers, and says what became of them.

app       Consumer: the handlers and how they are run (place: where)  service  one run of it: start, drain, stop
loop      a partition's reader         bell      rings when something is new   leader    who leads an ordered one
asking    asks Redis, also ahead       hand      takes what has come when the bell rings
desk      what is in hand              outbox    what became of it, on its way   reporter  failures, told to operators
handling  the handlings under way      begun     a coroutine that waits         suspects  what may have killed one
runner    runs one handler             threads   for those that block           context   ``ctx``
rehearsal it in a test kit             load      module:app → the Consumer      ending    the loop's end
slots counts health                    the small ledgers of one run
pure: handlers backoff verdict lanes decode arming
"""

from timerq.consumer.app import Consumer, Unwanted
from timerq.consumer.context import AsyncContext, Context
from timerq.consumer.counts import Counts

__all__ = ["AsyncContext", "Consumer", "Context", "Counts", "Unwanted"]
