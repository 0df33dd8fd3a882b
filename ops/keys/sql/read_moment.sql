-- The moment so many seconds ago on the database's clock.
SELECT weavehold_clock() - make_interval(secs => %(seconds_back)s)
