-- A commit that was answered survives a power cut: the acknowledgement to the broker rests on it.
PRAGMA synchronous = FULL
