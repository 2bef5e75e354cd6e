"""Which clusters a Placement selects, as a function of what is known. Pure."""
