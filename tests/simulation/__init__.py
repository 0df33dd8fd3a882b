"""Delivery under fire, in virtual time: many Groups, everything that can go wrong, and a checker that shares no code.

A seed decides everything. The same seed gives the same run, to the last commit, on every machine and in every
process: there is no clock, no socket and no thread, only a loop whose time jumps to what is due next
(`virtual_loop`).

**Real code.** `ConsumerRun` with all that it is made of (pull, arrival, `apply_event`, gap buffer, `fill_gap`,
`shard_holes`, `settle_fork`, repairs, comparison of heads) on a real `SqliteStore` file; the projector's
provisioning; `RelayShard` with its pipeline, stream and messages. Clock, jitter and three bounds are put in from
outside (`run_plan`).

**Model.** The authority is a log per shard, cut off and continued otherwise by a restore (`truth`). JetStream is
streams with fences and durable pull consumers with ack-all (`broker`), behind connections that keep order and lose
things (`network`). The projection is a ledger that holds one row per Event and hinders no wrong one (`ledger`).
Projectors read whole shards; Workers read some Groups by filters, some of these from a later visibility start on
(RULE-23).

**Faults** (`plan`): messages dropped, doubled, late and out of order, garbled, forged by a stranger or claiming a far
sequence; calls and answers lost, late by seconds, computed from a history that is gone meanwhile; forged Events in
the history's pages; connections cut, with what waited in them sent afterwards; messages deleted from a stream, Events
that the broker refuses; consumers deleted; the broker's store wiped or replaced by an older copy; relays replaced
while their predecessors publish on; consumers killed before or after a commit, before or after an acknowledgement,
while they wait for an answer or anywhere; their stores lost or replaced by older copies; Groups hidden from a Worker
for a while; the authority restored, with a new incarnation in new streams of which nobody is told, or in silence, its
history shorter than a Cursor, level with it, or beyond it with other Events below, or without the whole Group.

**Judgement** (`checker`): every commit by the log alone, with its intents and the Events that it reports as lost, every
acknowledgement, every report to the authority, every file against its commits at each start, every stream against the
log; and after the last fault everybody catches up, reads the streams of the current incarnation, and asks hardly
anything any more.

**Mutants** (`mutants`): the code with one decision undone at a time is caught, each within a bounded number of seeds.

**Limits.** A Worker that keeps the rows of a Group that was lost as a whole does right: it cannot tell that from a
Membership that ended. What a forged message hides is found by the comparison of heads, not by positions. Key rotation,
quarantine, unknown kinds, blue/green and side effects are tested elsewhere.
One consumer per process; SQLite only. The broker's model is written from what was measured of the real one, not from
its source.

Run it by hand: `python -m tests.simulation.run --seeds 0..999`, or one seed with `--seed N --trace`.
"""
