"""timerq in the peer harness: copy this folder's files into its ``adapters/`` and run it with ``--only timerq``.

Named as the harness names things (`common.Adapter`); timerq itself is imported inside the methods only, because the
driver reads this class from another environment. TIMERQ_SOURCE is what pip installs; by default the published package.
"""
# ruff: noqa: RUF012 - class attributes are the harness's way

import os

from common import Adapter, fire

NAMESPACE = "bench"
STREAM = "{bench:0}:s:events"
MSGPACK_STR8_HEADER = 2  # what stands in front of the payload's text once it is encoded


class TimerQ(Adapter):
    name = "timerq"
    requirements = [*(["-e", os.environ["TIMERQ_SOURCE"]] if "TIMERQ_SOURCE" in os.environ else ["timerq"])]
    packages = ["timerq", "redis", "hiredis"]
    prep_rate = 20000
    concurrent = True
    w1_n = 100000
    w3_n = {"publish": 100000, "e2e": 40000}
    modes = {
        "publish": {"fire": "stream"},
        "e2e": {"fire": "handler"},  # a second process: XREADGROUP 500, XACK, decode, handler
    }
    w6_modes = ["publish"]
    field = b"payload"

    async def open(self, url, mode):
        from timerq import AsyncTimerQueue, Event, Upsert

        self.queue = AsyncTimerQueue.connect(url, namespace=NAMESPACE)
        self.event, self.upsert = Event, Upsert
        await self.queue.init()

    async def close(self):
        await self.queue.close()

    async def schedule(self, key, due, payload):
        await self.queue.upsert(key, self.event("tick", payload), at=round(due * 1000))

    async def schedule_bulk(self, items):
        event, upsert = self.event, self.upsert
        await self.queue.upsert_many(
            [upsert(key, event("tick", payload), at=round(due * 1000)) for key, due, payload in items]
        )

    replace, replace_bulk = schedule, schedule_bulk

    def streams(self, client, mode):
        # The harness reads the payload's text; on the stream it is encoded.
        parse = client.response_callbacks["XRANGE"]
        if not hasattr(parse, "decodes"):

            def decoded(reply, **options):
                entries = parse(reply, **options)
                for _, fields in entries:
                    fields[b"payload"] = fields[b"payload"][MSGPACK_STR8_HEADER:]
                return entries

            decoded.decodes = True
            client.set_response_callback("XRANGE", decoded)
        return [STREAM]

    def roles(self, workers, mode):
        return ["worker"] * workers + (["consumer"] if mode["fire"] == "handler" else [])

    def run_role(self, role, url, mode):
        if role == "worker":
            from timerq.dispatcher import Dispatcher

            Dispatcher(url, namespace=NAMESPACE).run()
        else:
            self.consume(url)

    def consume(self, url):
        import msgpack
        import redis

        client = redis.Redis.from_url(url, socket_timeout=None)
        try:
            client.xgroup_create(STREAM, "g", "0", mkstream=True)
        except redis.ResponseError:
            pass  # it is there
        while True:
            for _, entries in client.xreadgroup("g", "c1", {STREAM: ">"}, count=500, block=1000) or ():
                for _, fields in entries:
                    fire(msgpack.unpackb(fields[b"payload"]))
                client.xack(STREAM, "g", *[entry for entry, _ in entries])


ADAPTER = TimerQ()
