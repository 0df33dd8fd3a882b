"""`weavehold verify`: proves that what is stored, what was promised, what was delivered and what was derived agree."""
