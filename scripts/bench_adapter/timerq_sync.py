"""The same with the blocking client: one call at a time costs less there, and the bulk API is the same."""
# ruff: noqa: RUF012

from adapters.timerq import NAMESPACE, TimerQ


class TimerQSync(TimerQ):
    name = "timerq_sync"
    env = "timerq"
    concurrent = False
    modes = {"publish": {"fire": "stream"}}
    w3_n = {"publish": 100000}

    def open(self, url, mode):
        from timerq import Event, TimerQueue, Upsert

        self.queue = TimerQueue.connect(url, namespace=NAMESPACE)
        self.event, self.upsert = Event, Upsert
        self.queue.init()

    def close(self):
        self.queue.close()

    def schedule(self, key, due, payload):
        self.queue.upsert(key, self.event("tick", payload), at=round(due * 1000))

    def schedule_bulk(self, items):
        event, upsert = self.event, self.upsert
        self.queue.upsert_many(
            [upsert(key, event("tick", payload), at=round(due * 1000)) for key, due, payload in items]
        )

    replace, replace_bulk = schedule, schedule_bulk


ADAPTER = TimerQSync()
