"""The core: one pure function per verb, giving what to send and reading what comes back.

command    Command and Steps, what a client sends     items       verbs on single schedules, one or many at a time
record     what a stored schedule's hash holds        queue       what gathers while a call is on its way
namespace  made, found, opened again                  durable     how safe a write must be

upsert     (arming, options, first: its words)        cancel      by key, and by range (ranges)
edit       pause, resume, trigger; publish            read        get, list, count, stats
recurring  done, backfill, next, resume from now      history     why
rehearsal  what an upsert or a backfill would do      wording     a schedule in the words that ask for it
owner      incarnations, heartbeats, destroy          owned       what a handle of an owner says and knows
sets       plan and apply (members, planned)          calling     functions that are called later
dispatch   fire, advance, trim, beat                  backlog     bound, unbound, tend
consume    receive, settle, once                      lead        who reads for an ordered group
dead       list, show, replay, discard                letters     a dead letter, and which ones are meant
entries    one parser for XREAD's reply               phrasing    a refusal in the words of a command line or a file
"""
