"""Speed and size of timerq, each figure beside a bare script that does the Redis work of the same step.

rig          servers, processes, and rounds that take turns
bare         the bare scripts, and what both sides store
processes    what runs beside: the bare loops, a stream reader, a producer at a fixed rate
writing      upsert, upsert_many, concurrent upserts
firing       draining a backlog, fire lag
calendars    the next instant of an expression, draining calendars
owners       destroying an owner
consuming    a backlog handled, the order of lanes, due to handler
standing     idle cost, memory, listing
table        targets, verdicts, the table
"""
