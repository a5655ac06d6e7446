"""The core: one pure function per verb, giving what to send and reading what comes back.

`command` has the shapes (Command, Item, Steps); each verb has a room: `upsert`, `cancel` (and sweep), `edit` (pause,
resume, trigger, publish), `read` (get, list, count, stats), `dispatch` (fire, advance, trim, heartbeat), `namespace`.
`record` knows what a stored schedule's hash holds.
"""
