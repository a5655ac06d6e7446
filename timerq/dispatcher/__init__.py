"""The dispatcher: fires what is due. Run as many as you like; they share the work without a leader.

decide       when to look, how much to take, who comes first: pure
partition    the loop around it, a thread for each partition
listen       hears that an earlier schedule has come
health       says once that Redis is away, and once that it is back
undertaker   destroys owners that are heard no more
dispatcher   starts and stops them, says that it lives, trims the streams
"""

from timerq.dispatcher.dispatcher import Dispatcher

__all__ = ["Dispatcher"]
