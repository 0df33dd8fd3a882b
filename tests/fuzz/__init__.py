"""Coverage-guided fuzzing of what reads bytes from strangers (TRU-1, TRU-3, ACC-5).

A target is a module with a function `check(data)` that raises when a promise is broken, and `seeds()` to begin with:
`strict_parse`, `canonicalize` and `pipeline`. Everything that was once worth keeping lies in `corpus/<target>/` and
is checked again by `make test` without the fuzzer. From the project's root:

    python -m tests.fuzz.TARGET NEW tests/fuzz/corpus/TARGET -max_total_time=300
        fuzz; finds go to the folder NEW, an input that fails is written down as crash-…
    python -m tests.fuzz.TARGET crash-…
        check one input again
    python -m tests.fuzz.TARGET -merge=1 -use_counters=0 tests/fuzz/corpus/TARGET NEW
        keep what covers more
    python -m tests.fuzz.drive
        write the seeds into the corpus

`make fault` fuzzes each target for WEAVEHOLD_FUZZ_SECONDS (60).
"""
