"""Recorded histories: what was signed once must mean the same for ever (PRJ-5).

Each folder is one history: `events.jsonl` holds the signed bytes of every Event, one a line in the order of the log,
`history.json` the keys and heads that prove them; neither ever changes. `digests.json` says what each consumer and the
authority's own fold make of them, each at its version. `record.py` makes both.
"""
