"""What every part of Weavehold agrees on: types, encodings and pure rules. No IO, no clock, no randomness."""
