SELECT weavehold_clock()
