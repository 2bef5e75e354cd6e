"""Which clusters a Placement selects: a pure scheduler, and a controller that writes decisions."""
