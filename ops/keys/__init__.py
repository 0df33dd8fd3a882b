"""The keys of an Organization as its operators handle them: register, rotate, revoke, look, audit (TRU-2, TRU-5)."""
