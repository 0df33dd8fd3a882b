"""Chaos on real processes: everything is killed, cut, stalled and set back while Commands and work go on."""
